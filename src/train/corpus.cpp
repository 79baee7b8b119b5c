#include "train/corpus.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "octet/error.hpp"
#include "train/tokenizer.hpp"

namespace octet::train {
namespace {

namespace fs = std::filesystem;

MappedFile open_data(const fs::path& path) {
    require(fs::exists(path), "the data '", path.string(),
            "' does not exist; give --data a text file or a .bin of tokens");
    MappedFile file(path);
    require(!file.bytes().empty(), "the data '", path.string(),
            "' is empty; give --data a text file with something in it");
    return file;
}

// Text through SentencePiece, a line at a time, into 32-bit tokens on disk. Made once for each text and model.
fs::path tokenize(const fs::path& text_path, const std::string& description, const fs::path& cache) {
    const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(description);
    const MappedFile text = open_data(text_path);
    const MappedFile model(description.substr(description.find(':') + 1));
    std::error_code error;
    fs::create_directories(cache, error);
    const fs::path made = cache / ("tokens-" + hex(checksum_of(text.bytes()) ^ checksum_of(model.bytes())) + ".bin");
    if (fs::exists(made)) return made;
    replace_file(made, [&](const fs::path& temporary) {
        DurableFile out(temporary);
        std::string_view rest(reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size());
        while (!rest.empty()) {
            const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
            const std::vector<std::int32_t> tokens = tokenizer->encode(rest.substr(0, end));
            out.write(tokens.data(), tokens.size() * sizeof tokens[0]);
            rest.remove_prefix(end);
        }
        out.close();
    });
    return made;
}

}  // namespace

std::string resolve_tokens(const CorpusOptions& options) {
    if (options.tokens != "auto") return options.tokens;
    if (options.path.extension() != ".bin") return "bytes";
    return options.vocabulary <= 65536 ? "u16" : "u32";
}

Corpus::Corpus(const CorpusOptions& options)
    : path_(options.path.string()), tokenizer_(resolve_tokens(options)), vocabulary_(options.vocabulary) {
    const bool pieces = tokenizer_.rfind("sentencepiece:", 0) == 0;
    const std::int64_t known = make_tokenizer(tokenizer_)->vocabulary();  // throws when there is no such thing
    if (pieces || tokenizer_ == "bytes")
        require(options.vocabulary >= known, "the model has a vocabulary of ", options.vocabulary, " and '", tokenizer_,
                "' makes ", known, " different tokens; set [model] vocabulary to at least that");
    file_ = open_data(pieces ? tokenize(options.path, tokenizer_, options.cache) : options.path);
    width_ = tokenizer_ == "bytes" ? 1 : tokenizer_ == "u16" ? 2 : 4;
    const std::size_t bytes = file_.bytes().size(), width = static_cast<std::size_t>(width_);
    require(bytes % width == 0, "'", path_, "' has ", bytes, " bytes, not a whole number of ", 8 * width,
            "-bit tokens; --tokens says how it is stored (u16 or u32)");
    count_ = static_cast<std::int64_t>(bytes / width);
    // Beyond this a scan would delay the start; copy() checks what it hands out in any case.
    constexpr std::size_t scanned_at_once = std::size_t{1} << 28;
    if (width_ > 1 && bytes <= scanned_at_once) check_tokens(options.vocabulary);
}

template <class F>
void Corpus::each(std::int64_t begin, std::int64_t end, F&& f) const {
    const std::byte* data = file_.bytes().data();
    for (std::int64_t i = begin; i < end; ++i) {
        std::uint32_t token = 0;  // stored little-endian, as this machine is
        std::memcpy(&token, data + i * width_, static_cast<std::size_t>(width_));
        f(i, token);
    }
}

void Corpus::check_tokens(std::int64_t vocabulary) const {
    each(0, count_, [&](std::int64_t at, std::uint32_t token) {
        require(token < vocabulary, "token ", at, " of '", path_, "' is ", token, " and the model's vocabulary is ",
                vocabulary, "; is it stored as --tokens ", tokenizer_, "?");
    });
}

void Corpus::copy(std::int64_t begin, std::span<std::int32_t> out) const {
    const auto end = begin + static_cast<std::int64_t>(out.size());
    require(begin >= 0 && end <= count_, "tokens ", begin, " to ", end, " of '", path_, "' were asked for and it has ",
            count_);
    each(begin, end, [&](std::int64_t at, std::uint32_t token) {
        require(token < vocabulary_, "token ", at, " of '", path_, "' is ", token, " and the model's vocabulary is ",
                vocabulary_);
        out[static_cast<std::size_t>(at - begin)] = static_cast<std::int32_t>(token);
    });
}

std::string Corpus::fingerprint() const {
    constexpr std::size_t sample = std::size_t{1} << 20;
    const std::span<const std::byte> bytes = file_.bytes();
    Checksum checksum;
    const std::uint64_t size = bytes.size();
    checksum.add(&size, sizeof size);
    checksum.add(bytes.data(), std::min(sample, bytes.size()));
    checksum.add(bytes.data() + bytes.size() - std::min(sample, bytes.size()), std::min(sample, bytes.size()));
    return hex(checksum.value());
}

double Corpus::unigram_entropy(std::int64_t begin, std::int64_t end) const {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(vocabulary_), 0);
    each(begin, end, [&](std::int64_t, std::uint32_t token) {
        if (token < counts.size()) ++counts[token];
    });
    const double total = static_cast<double>(end - begin);
    double entropy = 0;
    for (const std::int64_t count : counts) {
        if (count == 0) continue;
        entropy -= static_cast<double>(count) / total * std::log(static_cast<double>(count) / total);
    }
    return entropy;
}

}  // namespace octet::train
