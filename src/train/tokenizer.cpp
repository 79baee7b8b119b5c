#include "train/tokenizer.hpp"

#include <filesystem>
#include <limits>
#include <sstream>

#include "octet/error.hpp"

#if defined(OCTET_HAVE_SENTENCEPIECE)
#include <sentencepiece_processor.h>
#endif

namespace octet::train {
namespace {

class Bytes : public Tokenizer {
public:
    std::int64_t vocabulary() const override { return 256; }
    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<std::int32_t> tokens;
        tokens.reserve(text.size());
        for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
        return tokens;
    }
    std::string decode(std::span<const std::int32_t> tokens) const override {
        std::string text;
        for (const std::int32_t token : tokens) text += static_cast<char>(static_cast<unsigned char>(token));
        return text;
    }
};

class Numbers : public Tokenizer {
public:
    explicit Numbers(std::int64_t vocabulary) : vocabulary_(vocabulary) {}
    std::int64_t vocabulary() const override { return vocabulary_; }
    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::istringstream in{std::string(text)};
        std::vector<std::int32_t> tokens;
        for (std::int32_t token; in >> token;) tokens.push_back(token);
        require(in.eof(), "the data is pre-tokenized, so a prompt is token numbers separated by spaces; '", text,
                "' was given");
        return tokens;
    }
    std::string decode(std::span<const std::int32_t> tokens) const override {
        std::string text;
        for (const std::int32_t token : tokens) text += std::to_string(token) + " ";
        return text;
    }

private:
    std::int64_t vocabulary_;
};

#if defined(OCTET_HAVE_SENTENCEPIECE)
class SentencePiece : public Tokenizer {
public:
    explicit SentencePiece(const std::string& file) {
        require(!std::filesystem::is_directory(file), "'", file,
                "' is a folder, expected a SentencePiece model's file");
        const auto status = processor_.Load(file);
        if (!status.ok())
            fail(Status::io_error, "could not read the SentencePiece model '", file, "': ", status.ToString());
    }
    std::int64_t vocabulary() const override { return processor_.GetPieceSize(); }
    std::vector<std::int32_t> encode(std::string_view text) const override {
        std::vector<int> ids;
        const auto status = processor_.Encode({text.data(), text.size()}, &ids);
        if (!status.ok()) fail(Status::invalid_argument, "SentencePiece could not encode: ", status.ToString());
        return {ids.begin(), ids.end()};
    }
    std::string decode(std::span<const std::int32_t> tokens) const override {
        std::string text;
        const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text);
        if (!status.ok()) fail(Status::invalid_argument, "SentencePiece could not decode: ", status.ToString());
        return text;
    }

private:
    sentencepiece::SentencePieceProcessor processor_{};
};
#endif

}  // namespace

bool has_sentencepiece() {
#if defined(OCTET_HAVE_SENTENCEPIECE)
    return true;
#else
    return false;
#endif
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& description) {
    const std::string prefix = "sentencepiece:";
    if (description == "bytes") return std::make_unique<Bytes>();
    if (description == "u16") return std::make_unique<Numbers>(std::int64_t{1} << 16);
    if (description == "u32") return std::make_unique<Numbers>(std::numeric_limits<std::int32_t>::max());
    if (description.rfind(prefix, 0) == 0) {
#if defined(OCTET_HAVE_SENTENCEPIECE)
        return std::make_unique<SentencePiece>(description.substr(prefix.size()));
#else
        fail(Status::unsupported, "tokens '", description,
             "' were asked for and SentencePiece is not in this build; install it (Debian: libsentencepiece-dev) and "
             "build again, or give pre-tokenized data: --tokens u16 or u32");
#endif
    }
    fail(Status::invalid_argument, "tokens '", description,
         "' were asked for; known: bytes, u16, u32, sentencepiece:<model file>");
}

}  // namespace octet::train
