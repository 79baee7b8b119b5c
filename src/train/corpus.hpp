// A corpus: tokens in a memory-mapped file. Text is taken byte by byte, or through a SentencePiece model into a file
// of tokens that is made once; .bin files are tokens already, 16 or 32 bits each, little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "train/checkpoint_file.hpp"

namespace octet::train {

struct CorpusOptions {
    std::filesystem::path path{};
    std::string tokens = "auto";    // bytes | u16 | u32 | sentencepiece:<model file>; auto: see resolve_tokens
    std::int64_t vocabulary = 0;    // the model's; every token must be below it
    std::filesystem::path cache{};  // folder for the tokens that SentencePiece makes
};

// auto is u16 for a .bin file where the vocabulary fits 16 bits, u32 where it does not, and bytes for anything else.
std::string resolve_tokens(const CorpusOptions& options);

class Corpus {
public:
    // Throws when the file is missing, empty, not a whole number of tokens, or has a token the model has not.
    explicit Corpus(const CorpusOptions& options);

    const std::string& path() const { return path_; }
    const std::string& tokenizer() const { return tokenizer_; }  // resolved
    std::int64_t tokens() const { return count_; }
    void copy(std::int64_t begin, std::span<std::int32_t> out) const;

    // Of the length and of the first and last mebibyte: enough to notice that a file was replaced.
    std::string fingerprint() const;

    // -sum p log p over tokens [begin, end), in nats a token: what a model that knows frequencies alone would reach.
    double unigram_entropy(std::int64_t begin, std::int64_t end) const;

private:
    template <class F>
    void each(std::int64_t begin, std::int64_t end, F&& f) const;
    void check_tokens(std::int64_t vocabulary) const;

    std::string path_, tokenizer_;
    MappedFile file_;
    int width_ = 1;  // bytes a token
    std::int64_t count_ = 0, vocabulary_ = 0;
};

}  // namespace octet::train
