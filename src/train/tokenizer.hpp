// Tokenizers: from text to tokens and back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octet::train {

class Tokenizer {
public:
    virtual ~Tokenizer() = default;
    virtual std::int64_t vocabulary() const = 0;
    virtual std::vector<std::int32_t> encode(std::string_view text) const = 0;
    virtual std::string decode(std::span<const std::int32_t> tokens) const = 0;
};

// "bytes"; "sentencepiece:<model file>"; "u16" and "u32" (tokens made elsewhere: encode and decode use numbers
// separated by spaces). Throws Error(unsupported) for SentencePiece where it is not in this build.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& description);

bool has_sentencepiece();

}  // namespace octet::train
