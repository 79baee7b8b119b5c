// Bad input to the public quantizers: an error that names the values, and not a byte written.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "octet/error.hpp"
#include "octet/memory.hpp"
#include "octet/quantize.hpp"

namespace octet {
namespace {

// A valid call of each operation, which a test spoils in one place. All outputs lie in one arena that must stay as it
// was whenever the call fails.
class BadInput : public testing::Test {
protected:
    static constexpr std::int64_t m = 6, k = 40, alignment = 4;
    std::vector<std::int32_t> ends{2, 2, 5};
    Tensor x{Format::bf16, {m, k}};
    Tensor w{Format::bf16, {2, 3, 5}};
    Buffer arena{1 << 16};
    std::size_t used = 0;

    void SetUp() override {
        std::memset(x.as<char>(), 0, x.bytes());
        std::memset(w.as<char>(), 0, w.bytes());
        std::memset(arena.data(), 0xA5, arena.bytes());
    }

    TensorView output(Format format, Extents extents) {
        void* place = arena.as<char>() + used;
        used += (static_cast<std::size_t>(extents.elements() * bytes_of(format)) + 63) / 64 * 64;
        return {place, format, extents};
    }
    QuantizedView rows() { return {output(Format::e4m3, {m, k}), output(Format::f32, {m}), output(Format::f32, {m})}; }
    QuantizedView columns() {
        return {output(Format::e4m3, {k, padded_bound(m, 3, alignment)}), output(Format::f32, {3, k}),
                output(Format::f32, {3, k})};
    }
    QuantizedView along_k() { return {output(Format::e4m3, {2, 3, 5}), output(Format::f32, {2, 3}), {}}; }
    Groups groups() const { return {ends.data(), static_cast<std::int64_t>(ends.size()), {}}; }

    void refused(const std::function<void()>& call, const std::vector<std::string>& words,
                 Status status = Status::invalid_argument) {
        try {
            call();
            ADD_FAILURE() << "accepted; expected an error with '" << words.front() << "'";
            return;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), status) << error.what();
            for (const std::string& word : words)
                EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
                    << "the error says: " << error.what() << "\nexpected in it: " << word;
        }
        for (std::size_t i = 0; i < arena.bytes(); ++i)
            ASSERT_EQ(arena.as<unsigned char>()[i], 0xA5)
                << "byte " << i << " of the outputs was written by a refused call";
    }
};

TEST_F(BadInput, TheUnspoiltCallsAreAccepted) {
    EXPECT_NO_THROW(quantize_rows(x, {}, rows()));
    EXPECT_NO_THROW(quantize_columns(x, groups(), alignment, {}, columns()));
    EXPECT_NO_THROW(quantize_weights(w, {}, along_k(), {}));
}

TEST_F(BadInput, NullPointers) {
    TensorView null = x.view();
    null.data = nullptr;
    refused([&] { quantize_rows(null, {}, rows()); }, {"x of shape [6, 40]", "null"});
    QuantizedView out = rows();
    out.data.data = nullptr;
    refused([&] { quantize_rows(x, {}, out); }, {"out data", "null"});
    out = rows();
    out.scale.data = out.inverse.data = nullptr;
    refused([&] { quantize_rows(x, {}, out); }, {"neither a scale nor an inverse"});
    refused([&] { quantize_columns(x, {nullptr, 3, {}}, alignment, {}, columns()); }, {"offsets", "null"});
    refused([&] { quantize_weights(w, {}, {}, {}); }, {"along_k, along_n or both"});
}

TEST_F(BadInput, Shapes) {
    QuantizedView out = rows();
    out.data.extents = Extents{m, k + 1};
    refused([&] { quantize_rows(x, {}, out); }, {"[6, 41]", "[6, 40]"});
    out = rows();
    out.scale.extents = Extents{m - 1};
    refused([&] { quantize_rows(x, {}, out); }, {"out scale", "[5]", "[6]"});
    TensorView flat = x.view();
    flat.extents = Extents{m * k};
    refused([&] { quantize_rows(flat, {}, rows()); }, {"[240]", "[any, any]"});
    TensorView empty = x.view();
    empty.extents = Extents{m, 0};
    refused([&] { quantize_rows(empty, {}, rows()); }, {"[6, 0]", "at least 1"});
    out = columns();
    out.data.extents = Extents{k, 11};
    refused([&] { quantize_columns(x, groups(), alignment, {}, out); }, {"11 token columns", "at least 12"});
}

TEST_F(BadInput, NegativeAndOverflowingSizes) {
    TensorView negative = x.view();
    negative.extents.shape[0] = -1;
    refused([&] { quantize_rows(negative, {}, rows()); }, {"[-1, 40]", "negative"});
    TensorView huge = x.view();
    huge.extents.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
    huge.extents.strides = {std::int64_t{1} << 40, 1};
    refused([&] { quantize_rows(huge, {}, rows()); }, {"63 bits"});
    huge.extents.shape = {std::int64_t{1} << 61, 1};
    huge.extents.strides = {4, 1};
    refused([&] { quantize_rows(huge, {}, rows()); }, {"63 bits"});
    EXPECT_THROW((Extents{std::int64_t{1} << 40, std::int64_t{1} << 40}), Error);
    TensorView many = x.view();
    many.extents.shape[0] = std::int64_t{1} << 31;
    refused([&] { quantize_columns(many, groups(), alignment, {}, columns()); }, {"2147483648 tokens", "32-bit"});
}

TEST_F(BadInput, Strides) {
    TensorView strided = x.view();
    strided.extents.strides = {1, m};
    refused([&] { quantize_rows(strided, {}, rows()); }, {"strides (1, 6)", "step by 1"});
    strided.extents.strides = {k - 1, 1};
    refused([&] { quantize_rows(strided, {}, rows()); }, {"strides (39, 1)"});
    QuantizedView out = rows();
    out.scale.extents.strides[0] = 0;
    refused([&] { quantize_rows(x, {}, out); }, {"out scale", "share a place"});
    out = rows();
    out.scale.extents.strides[0] = -1;
    refused([&] { quantize_rows(x, {}, out); }, {"out scale", "backwards"});
}

TEST_F(BadInput, Offsets) {
    ends = {2, 1, 5};
    refused([&] { quantize_columns(x, groups(), alignment, {}, columns()); }, {"offset 1 is 1", "(2)"});
    ends = {2, 2, 7};
    refused([&] { quantize_columns(x, groups(), alignment, {}, columns()); }, {"offset 2 is 7", "6 tokens"});
    ends = {-1, 2, 5};
    refused([&] { quantize_columns(x, groups(), alignment, {}, columns()); }, {"offset 0 is -1"});
    refused([&] { quantize_columns(x, {ends.data(), 0, {}}, alignment, {}, columns()); }, {"0 groups"});
    refused([&] { quantize_columns(x, {ends.data(), -3, {}}, alignment, {}, columns()); }, {"-3 groups"});
}

TEST_F(BadInput, Alignment) {
    refused([&] { quantize_columns(x, groups(), 0, {}, columns()); }, {"alignment is 0"});
    refused([&] { quantize_columns(x, groups(), -4, {}, columns()); }, {"alignment is -4"});
    refused([&] { quantize_columns(x, groups(), std::numeric_limits<std::int64_t>::max(), {}, columns()); },
            {"alignment is 9223372036854775807"});
    QuantizeOptions options;
    options.scaling = Scaling::mx;
    refused([&] { quantize_columns(x, groups(), 48, options, columns()); }, {"alignment is 48", "multiple of 32"});
}

TEST_F(BadInput, FormatsAndOptions) {
    TensorView wrong = x.view();
    wrong.format = Format::e4m3;
    refused([&] { quantize_rows(wrong, {}, rows()); }, {"x has format e4m3", "f32 or bf16"});
    QuantizeOptions options;
    options.format = Format::bf16;
    refused([&] { quantize_rows(x, options, rows()); }, {"data format is bf16"});
    options.format = Format::e5m2;
    refused([&] { quantize_rows(x, options, rows()); }, {"out data has format e4m3", "e5m2"});
    options = {};
    options.scaling = static_cast<Scaling>(9);
    refused([&] { quantize_rows(x, options, rows()); }, {"scaling is 9"});
    options = {};
    options.mx_mode = static_cast<MxMode>(9);
    refused([&] { quantize_rows(x, options, rows()); }, {"mx mode is 9"});
    options = {};
    options.scaling = Scaling::mx;
    refused([&] { quantize_rows(x, options, rows()); }, {"out scale has format f32", "e8m0"});
}

TEST_F(BadInput, MisalignedBuffers) {
    TensorView odd = x.view();
    odd.data = static_cast<char*>(odd.data) + 1;
    refused([&] { quantize_rows(odd, {}, rows()); }, {"not a multiple of 2"});
    QuantizedView out = rows();
    out.scale.data = static_cast<char*>(out.scale.data) + 2;
    refused([&] { quantize_rows(x, {}, out); }, {"out scale", "not a multiple of 4"});
}

TEST_F(BadInput, SharedMemory) {
    QuantizedView out = rows();
    out.inverse = out.scale;
    refused([&] { quantize_rows(x, {}, out); }, {"share memory"});
    out = rows();
    out.data.data = x.as<void>();
    refused([&] { quantize_rows(x, {}, out); }, {"share memory"});
}

TEST_F(BadInput, AnOutputOverTheGroupOffsets) {
    std::vector<std::int32_t> numbers(m * k);
    numbers[0] = numbers[1] = 2, numbers[2] = 5;
    const TensorView over{numbers.data(), Format::f32, {m, k}};
    const Groups inside{numbers.data(), 3, {}};
    const std::vector<std::string> words{"the group offsets", "share memory"};
    QuantizedView q = columns();
    refused([&] { dequantize_columns(q, inside, alignment, {}, over); }, words);
    q.data.data = numbers.data();
    refused([&] { quantize_columns(x, inside, alignment, {}, q); }, words);
    const TensorView padded = output(Format::f32, {padded_bound(m, 3, alignment), k});
    refused([&] { unpad_groups(padded, inside, alignment, over); }, words);
    const std::int64_t blocked_bytes = swizzled_group_rows(m, 3) * swizzled_columns(5);
    const TensorView scales = output(Format::e8m0, {m, 5}), blocked = output(Format::e8m0, {blocked_bytes});
    std::vector<std::int32_t> many(static_cast<std::size_t>(blocked_bytes));
    many[0] = many[1] = 2, many[2] = 5;
    const Groups within{many.data(), 3, {}};
    refused([&] { swizzle_group_scales(scales, within, {many.data(), Format::e8m0, {blocked_bytes}}); }, words);
    refused([&] { unswizzle_group_scales(blocked, within, {many.data(), Format::e8m0, {m, 5}}); }, words);
    EXPECT_EQ(numbers[2], 5);
}

TEST_F(BadInput, DevicesAndBackends) {
    TensorView far = x.view();
    far.device = {DeviceKind::hip, 0};
    refused([&] { quantize_rows(far, {}, rows()); }, {"cpu", "hip:0"});
    refused([&] { quantize_rows(x, {}, rows(), {.backend = Backend::cuda}); }, {"backend", "automatic"});
    refused([&] { quantize_rows(x, {}, rows(), {.threads = -2}); }, {"threads is -2"});
}

TEST_F(BadInput, DualTensorsThatDoNotMatch) {
    Tensor other(Format::bf16, {m - 1, k}), single(Format::f32, {m, k});
    refused([&] { quantize_columns_dual(x, other, groups(), alignment, {}, columns(), columns()); }, {"6 rows", "5"});
    refused([&] { quantize_columns_dual(x, single, groups(), alignment, {}, columns(), columns()); }, {"bf16", "f32"});
}

TEST_F(BadInput, VisitsForTheOtherOrientation) {
    const QuantizedView k_last = along_k(), n_last{output(Format::e4m3, {2, 5, 3}), output(Format::f32, {2, 5}), {}};
    refused([&] { quantize_weights(w, {}, k_last, n_last, {.visit = WeightVisit::first}); },
            {"first of two visits", "along_n"});
    refused([&] { quantize_weights(w, {}, k_last, {}, {.visit = WeightVisit::second}); },
            {"second of two visits", "along_k"});
    quantize_weights(w, {}, k_last, {}, {.visit = WeightVisit::first});
    quantize_weights(w, {}, {}, n_last, {.visit = WeightVisit::second});
    EXPECT_GT(*static_cast<const float*>(n_last.scale.data), 0.0f);  // the arena's bytes are a negative number
}

TEST_F(BadInput, Layouts) {
    const TensorView padded = output(Format::bf16, {11, k});
    refused([&] { pad_groups(x, groups(), alignment, padded, nullptr); }, {"11 rows", "at least 12"});
    Tensor scale(Format::e8m0, {5, 3});
    refused([&] { swizzle_scales(scale, output(Format::e8m0, {511})); }, {"[511]", "[512]"});
    refused([&] { swizzle_scales(x, output(Format::e8m0, {512})); }, {"format bf16"});
}

}  // namespace
}  // namespace octet
