// A buffer between two canaries that remembers what it held.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace octet::fuzz {

class Guarded {
public:
    // `shift` moves the payload off its natural alignment of 64 bytes.
    Guarded(std::size_t bytes, std::size_t shift, std::uint8_t fill)
        : memory_(bytes + shift + 2 * guard + 64, fill), bytes_(bytes) {
        const auto address = reinterpret_cast<std::uintptr_t>(memory_.data() + guard);
        offset_ = guard + (64 - address % 64) % 64 + shift;
        std::memset(memory_.data(), 0xC3, offset_);
        std::memset(memory_.data() + offset_ + bytes_, 0x3C, memory_.size() - offset_ - bytes_);
    }

    std::uint8_t* data() { return memory_.data() + offset_; }
    const std::uint8_t* data() const { return memory_.data() + offset_; }
    std::size_t bytes() const { return bytes_; }

    void remember() { before_ = memory_; }
    bool unchanged() const { return memory_ == before_; }
    bool canaries_alive() const {
        return std::memcmp(memory_.data(), before_.data(), offset_) == 0 &&
               std::memcmp(memory_.data() + offset_ + bytes_, before_.data() + offset_ + bytes_,
                           memory_.size() - offset_ - bytes_) == 0;
    }
    bool changed(std::size_t byte) const { return memory_[offset_ + byte] != before_[offset_ + byte]; }

private:
    static constexpr std::size_t guard = 128;
    std::vector<std::uint8_t> memory_, before_{};
    std::size_t bytes_, offset_ = 0;
};

}  // namespace octet::fuzz
