#include "train/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "octet/error.hpp"
#include "temporary_folder.hpp"

namespace octet::train {
namespace {

using testing::error_of;
using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

std::string file_of(const std::string& header, const std::string& elements) {
    std::string text(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(header.size() >> (8 * i));
    return text + header + elements;
}

std::string refusal(const std::string& contents) {
    const TemporaryFolder folder;
    write_text(folder / "a.safetensors", contents);
    return error_of([&] { SafetensorsFile file(folder / "a.safetensors"); });
}

TEST(Safetensors, ChecksumsAreXxh64) {  // the values of the published implementation
    const auto of = [](std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); };
    EXPECT_EQ(hex(of("")), "ef46db3751d8e999");
    EXPECT_EQ(hex(of("a")), "d24ec4f1a98c6e5b");
    EXPECT_EQ(hex(of("abc")), "44bc2cf5ad770999");
    EXPECT_EQ(hex(of("Nobody inspects the spammish repetition")), "fbcea83c8a378bf1");
}

TEST(Safetensors, ChecksumsDoNotDependOnHowBytesArrive) {
    std::string text(1000, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 37);
    const std::uint64_t whole = checksum_of(std::as_bytes(std::span(text)));
    for (const std::size_t piece : {1u, 3u, 31u, 32u, 33u, 64u, 999u}) {
        Checksum checksum;
        for (std::size_t at = 0; at < text.size(); at += piece)
            checksum.add(text.data() + at, std::min(piece, text.size() - at));
        EXPECT_EQ(checksum.value(), whole) << piece;
    }
}

TEST(Safetensors, WhatIsWrittenIsRead) {
    const TemporaryFolder folder;
    std::vector<float> a{1, -2.5f, 3, 4, 5, 6};
    std::vector<std::uint16_t> b{0x3F80, 0x7FC0};
    std::vector<std::int32_t> c{-1, 2, 3};
    std::vector<StoredTensor> tensors{{"a \"quoted\" / ü", StoredType::f32, {2, 3}, a.data()},
                                      {"b", StoredType::bf16, {2}, b.data()},
                                      stored("c", std::span(c)),
                                      {"empty", StoredType::i64, {0, 4}, nullptr},
                                      {"scalar", StoredType::f32, {}, a.data()}};
    const WrittenFile written = write_safetensors(folder / "a.safetensors", tensors, {{"format", "pt"}});
    EXPECT_EQ(written.bytes, std::filesystem::file_size(folder / "a.safetensors"));

    const SafetensorsFile file(folder / "a.safetensors");
    EXPECT_EQ(checksum_of(file.file().bytes()), written.checksum);
    EXPECT_EQ(file.metadata().at("format"), "pt");
    ASSERT_EQ(file.entries().size(), 5u);
    EXPECT_EQ(file.entries().at("empty").shape, (Shape{0, 4}));
    std::vector<float> a2(6), scalar(1);
    std::vector<std::uint16_t> b2(2);
    std::vector<std::int32_t> c2(3);
    std::vector<StoredTensor> wanted = tensors;
    wanted[0].data = a2.data(), wanted[1].data = b2.data(), wanted[2].data = c2.data(), wanted[4].data = scalar.data();
    file.require_same(wanted, "this model");
    file.copy_to(wanted);
    EXPECT_EQ(a2, a);
    EXPECT_EQ(b2, b);
    EXPECT_EQ(c2, c);
    EXPECT_EQ(scalar[0], 1.0f);
}

TEST(Safetensors, ElementsStartOnEightBytes) {
    const TemporaryFolder folder;
    for (std::string name = "x"; name.size() < 12; name += "x") {
        std::vector<std::int32_t> values{1};
        const std::vector<StoredTensor> tensors{stored(name, std::span(values))};
        write_safetensors(folder / "a", tensors, {});
        EXPECT_EQ((std::filesystem::file_size(folder / "a") - 4) % 8, 0u);
    }
}

TEST(Safetensors, NamesTheFirstDifference) {
    const TemporaryFolder folder;
    std::vector<std::int32_t> values{1, 2};
    const std::vector<StoredTensor> tensors{stored("a", std::span(values))};
    write_safetensors(folder / "f", tensors, {});
    const SafetensorsFile file(folder / "f");
    const auto difference = [&](std::vector<StoredTensor> wanted) {
        return error_of([&] { file.require_same(wanted, "this model"); });
    };
    EXPECT_EQ(difference(tensors), "");
    EXPECT_NE(difference({}).find("has a tensor 'a' and this model has not"), std::string::npos);
    EXPECT_NE(difference({tensors[0], stored("b", std::span(values))}).find("this model has a tensor 'b'"),
              std::string::npos);
    const std::string shape = difference({{"a", StoredType::i32, {1, 2}, values.data()}});
    EXPECT_NE(shape.find("I32 [2]"), std::string::npos) << shape;
    EXPECT_NE(shape.find("I32 [1, 2] in this model"), std::string::npos) << shape;
}

TEST(Safetensors, RefusesWhatIsNotOne) {
    EXPECT_NE(refusal("").find("0 bytes"), std::string::npos);
    EXPECT_NE(refusal("plain text, and no tensors at all").find("truncated"), std::string::npos);
    EXPECT_NE(refusal(file_of("[1, 2]", "")).find("not a JSON object"), std::string::npos);
    EXPECT_NE(refusal(file_of("{\"a\": ", "")).find("not a JSON object"), std::string::npos);
    EXPECT_NE(refusal(std::string(8, '\xFF') + "{}").find("truncated"), std::string::npos);
}

TEST(Safetensors, RefusesImpossibleHeaders) {
    const auto one = [](const std::string& shape, const std::string& offsets, const std::string& type = "F32") {
        return "{\"a\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
    };
    const std::string eight(8, 'x');
    EXPECT_EQ(refusal(file_of(one("[2]", "[0,8]"), eight)), "");
    EXPECT_NE(refusal(file_of(one("[2]", "[0,8]"), "xxxx")).find("truncated"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[2]", "[8,0]"), eight)).find("damaged"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[3]", "[0,8]"), eight)).find("has 8 bytes"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[1]", "[4,8]"), eight)).find("expected 0"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[1]", "[0,4]"), eight)).find("4 bytes after"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[-2]", "[0,8]"), eight)).find("impossible shape"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[2]", "[-1,8]"), eight)).find("data_offsets"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[2]", "[0]"), eight)).find("data_offsets"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("2", "[0,8]"), eight)).find("expected a list"), std::string::npos);
    EXPECT_NE(refusal(file_of(one("[2]", "[0,8]", "F99"), eight)).find("F99"), std::string::npos);
    // 2^32 * 2^32 is 0 in 64 bits.
    EXPECT_NE(refusal(file_of(one("[4294967296,4294967296]", "[0,0]"), "")).find("damaged"), std::string::npos);
    EXPECT_NE(refusal(file_of("{\"a\":{\"dtype\":\"F32\"}}", "")).find("described wrongly"), std::string::npos);
    EXPECT_NE(refusal(file_of("{\"a\":7}", "")).find("described wrongly"), std::string::npos);
    const std::string entry = "{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}";
    EXPECT_NE(refusal(file_of("{\"a\":" + entry + ",\"a\":" + entry + "}", "xxxx")).find("two tensors named 'a'"),
              std::string::npos);
    EXPECT_NE(refusal(file_of("{\"a\":" + entry + ",\"b\":" + entry + "}", "xxxx")).find("overlap"), std::string::npos);
}

TEST(Safetensors, NeverReadsOutsideADamagedFile) {  // under the sanitizers this is the test
    const TemporaryFolder folder;
    std::vector<std::int32_t> values(20, 7);
    const std::vector<StoredTensor> tensors{stored("first", std::span(values)), stored("second", std::span(values))};
    write_safetensors(folder / "f", tensors, {{"k", "v"}});
    const std::string good = read_text(folder / "f");
    for (std::size_t length = 0; length < good.size(); ++length)
        EXPECT_NE(refusal(good.substr(0, length)), "") << length;
    std::mt19937 random(1);
    for (int i = 0; i < 2000; ++i) {
        std::string bad = good;
        bad[random() % 160] = static_cast<char>(random());
        write_text(folder / "g", bad);
        error_of([&] {
            const SafetensorsFile file(folder / "g");
            for (const auto& [name, entry] : file.entries()) checksum_of(entry.data);
        });
    }
}

}  // namespace
}  // namespace octet::train
