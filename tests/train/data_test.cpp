#include "train/data.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "octet/error.hpp"
#include "temporary_folder.hpp"
#include "train/tokenizer.hpp"

namespace octet::train {
namespace {

using testing::error_of;
using testing::TemporaryFolder;
using testing::write_text;

TEST(Permutation, IsOne) {
    for (const std::int64_t size : {1, 2, 3, 4, 5, 17, 64, 100, 1000, 4097}) {
        for (const std::uint64_t key : {0ull, 1ull, 0xFFFFFFFFFFFFFFFFull}) {
            const Permutation permutation(size, key);
            std::set<std::int64_t> seen;
            for (std::int64_t i = 0; i < size; ++i) seen.insert(permutation(i));
            EXPECT_EQ(static_cast<std::int64_t>(seen.size()), size);
            EXPECT_EQ(*seen.begin(), 0);
            EXPECT_EQ(*seen.rbegin(), size - 1);
        }
    }
}

TEST(Permutation, Shuffles) {
    // Neighbours land about a third of the size apart, as in a random order; the orders of two keys are not alike.
    constexpr std::int64_t size = 10000;
    const Permutation a(size, 1), b(size, 2);
    double distance = 0;
    int same = 0;
    for (std::int64_t i = 0; i + 1 < size; ++i) {
        distance += std::abs(static_cast<double>(a(i + 1) - a(i)));
        same += a(i) == b(i);
    }
    EXPECT_NEAR(distance / size / size, 1.0 / 3, 0.02);
    EXPECT_LT(same, 10);
}

class Data : public ::testing::Test {
protected:
    TemporaryFolder folder;
    std::filesystem::path text(const std::string& contents, const std::string& name = "text.txt") {
        write_text(folder / name, contents);
        return folder / name;
    }
    template <class T>
    std::filesystem::path tokens(const std::vector<T>& values, const std::string& name = "tokens.bin") {
        return text({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)}, name);
    }
};

TEST_F(Data, BytesAreTokens) {
    const Corpus corpus({text("aé\n"), "auto", 256, {}});
    EXPECT_EQ(corpus.tokenizer(), "bytes");
    std::vector<std::int32_t> out(4);
    corpus.copy(0, out);
    EXPECT_EQ(out, (std::vector<std::int32_t>{'a', 0xC3, 0xA9, '\n'}));
    EXPECT_EQ(make_tokenizer("bytes")->decode(out), "aé\n");
    EXPECT_EQ(make_tokenizer("bytes")->encode("aé\n"), out);
}

TEST_F(Data, TokensOf16And32Bits) {
    const Corpus narrow({tokens(std::vector<std::uint16_t>{1, 65535, 3}), "auto", 65536, {}});
    EXPECT_EQ(narrow.tokenizer(), "u16");
    std::vector<std::int32_t> out(2);
    narrow.copy(1, out);
    EXPECT_EQ(out, (std::vector<std::int32_t>{65535, 3}));
    const Corpus wide({tokens(std::vector<std::uint32_t>{1, 102399, 3}), "auto", 102400, {}});
    EXPECT_EQ(wide.tokenizer(), "u32");
    wide.copy(0, out);
    EXPECT_EQ(out, (std::vector<std::int32_t>{1, 102399}));
}

TEST_F(Data, RefusesWhatCannotBeTrainedOn) {
    const auto refusal = [&](const std::filesystem::path& path, const std::string& kind, std::int64_t vocabulary) {
        return error_of([&] { Corpus corpus({path, kind, vocabulary, folder.path()}); });
    };
    EXPECT_NE(refusal(folder / "missing.txt", "auto", 256).find("does not exist"), std::string::npos);
    EXPECT_NE(refusal(text(""), "auto", 256).find("is empty"), std::string::npos);
    EXPECT_NE(refusal(folder.path(), "auto", 256).find("a folder"), std::string::npos);
    EXPECT_NE(refusal(text("abc"), "auto", 100).find("vocabulary of 100"), std::string::npos);
    EXPECT_NE(refusal(text("abc"), "u16", 256).find("3 bytes, not a whole number of 16-bit"), std::string::npos);
    EXPECT_NE(refusal(text("abc"), "words", 256).find("known: bytes"), std::string::npos);
    const std::string token = refusal(tokens(std::vector<std::uint16_t>{1, 2, 999}), "u16", 256);
    EXPECT_NE(token.find("token 2 of"), std::string::npos) << token;
    EXPECT_NE(token.find("is 999 and the model's vocabulary is 256"), std::string::npos) << token;
    if (!has_sentencepiece()) {
        const std::string error = refusal(text("abc"), "sentencepiece:m.model", 256);
        EXPECT_NE(error.find("libsentencepiece-dev"), std::string::npos) << error;
    }
    const Corpus small({text("0123456789"), "auto", 256, {}});
    EXPECT_NE(error_of([&] {
                  Windows windows(small, {8, 1, 0.1});
              }).find("expected at least 17 tokens"),
              std::string::npos);
}

TEST_F(Data, ChecksWhatItHandsOutOfDataTooLargeToScan) {
    const std::filesystem::path path = tokens(std::vector<std::uint16_t>{1, 999});
    std::filesystem::resize_file(path, (std::uintmax_t{1} << 28) + 2);  // the rest takes no room on the disk
    const Corpus corpus({path, "u16", 256, {}});
    std::vector<std::int32_t> out(2);
    corpus.copy(2, out);
    EXPECT_EQ(out, (std::vector<std::int32_t>{0, 0}));
    const std::string error = error_of([&] { corpus.copy(0, out); });
    EXPECT_NE(error.find("token 1 of"), std::string::npos) << error;
    EXPECT_NE(error.find("is 999 and the model's vocabulary is 256"), std::string::npos) << error;
}

TEST_F(Data, EpochsVisitEveryTrainingWindowOnceAndNoOther) {
    std::string contents(10 * 20 + 1, ' ');
    for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>('a' + i / 10);
    const Corpus corpus({text(contents), "auto", 256, {}});
    Windows windows(corpus, {10, 3, 0.2});
    EXPECT_EQ(windows.training_windows(), 16);
    EXPECT_EQ(windows.evaluation_windows(), 4);
    OwnedBatch batch;
    std::vector<std::vector<std::int32_t>> orders;
    for (int epoch = 0; epoch < 2; ++epoch) {
        std::vector<std::int32_t> order;
        for (int i = 0; i < 4; ++i) {
            windows.next(4, batch);
            for (std::size_t row = 0; row < 4; ++row) order.push_back(batch.tokens[row * 10]);
        }
        orders.push_back(order);
        EXPECT_EQ(std::set<std::int32_t>(order.begin(), order.end()).size(), 16u);
        EXPECT_LT(*std::max_element(order.begin(), order.end()), 'a' + 16);
    }
    EXPECT_NE(orders[0], orders[1]);
    windows.evaluation(0, 4, 4, batch);
    EXPECT_EQ(batch.tokens.front(), 'a' + 16);
    EXPECT_EQ(batch.targets[9], 'a' + 17);  // the window's last target is the next window's first token
}

TEST_F(Data, PositionsAreReachedAtOnce) {
    std::string contents(5000, ' ');
    for (std::size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>(mix(i));
    const Corpus corpus({text(contents), "auto", 256, {}});
    Windows walked(corpus, {7, 5, 0.1}), jumped(corpus, {7, 5, 0.1}), other(corpus, {7, 6, 0.1});
    OwnedBatch a, b, c;
    for (int i = 0; i < 300; ++i) walked.next(3, a);
    jumped.seek(walked.position() - 3);
    jumped.next(3, b);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.targets, b.targets);
    other.seek(walked.position() - 3);
    other.next(3, c);
    EXPECT_NE(a.tokens, c.tokens);
}

TEST_F(Data, UnigramEntropy) {
    const Corpus corpus({text("abababab"), "auto", 256, {}});
    EXPECT_NEAR(corpus.unigram_entropy(0, 8), std::log(2.0), 1e-12);
    EXPECT_NEAR(corpus.unigram_entropy(0, 1), 0.0, 1e-12);
}

TEST_F(Data, FingerprintsDiffer) {
    const Corpus a({text("abcabc", "a"), "auto", 256, {}}), b({text("abcabd", "b"), "auto", 256, {}}),
        c({text("abcabc", "c"), "auto", 256, {}});
    EXPECT_NE(a.fingerprint(), b.fingerprint());
    EXPECT_EQ(a.fingerprint(), c.fingerprint());
}

}  // namespace
}  // namespace octet::train
