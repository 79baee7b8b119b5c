// What products refuse: every message names both sides, and nothing is written.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "octet/error.hpp"
#include "products/operands.hpp"

namespace octet::testing {
namespace {

class ProductErrors : public ::testing::Test {
protected:
    Random random{31};
    QuantizeOptions rowwise{Scaling::rowwise, Format::e4m3}, blockwise{Scaling::blockwise, Format::e4m3};
    std::vector<std::int32_t> ends{10, 25};
    Groups groups = groups_of(ends);
    Tensor a = make_normal(Format::bf16, {30, 40}, random), dy = make_normal(Format::bf16, {30, 20}, random);
    Tensor w = make_normal(Format::bf16, {2, 20, 40}, random);
    Tensor y = make_poisoned(Format::f32, {30, 20}), dw = make_poisoned(Format::f32, {2, 20, 40});
    OwnedOperand qa = quantized_rows(a, rowwise), wk = quantized_weights(w, WeightOrientation::along_k, rowwise);
    OwnedOperand qdy_columns = quantized_columns(dy, groups, 16, rowwise),
                 qa_columns = quantized_columns(a, groups, 16, rowwise);

    void refuses(const std::function<void()>& f, const std::vector<std::string>& parts) {
        try {
            f();
            ADD_FAILURE() << "accepted, expected an error about " << parts.front();
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), Status::invalid_argument);
            for (const std::string& part : parts)
                EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
                    << error.what() << "; expected " << part;
        }
        for (const Tensor* tensor : {&y, &dw})
            for (std::size_t i = 0; i < tensor->bytes(); ++i) ASSERT_EQ(tensor->as<std::uint8_t>()[i], 0xA5);
    }
};

TEST_F(ProductErrors, Shapes) {
    const Tensor wide = make_normal(Format::bf16, {30, 41}, random), flat = make_normal(Format::bf16, {30}, random);
    refuses([&] { grouped_forward(wide.view(), w.view(), groups, y); }, {"[30, 41]", "40"});
    refuses([&] { grouped_forward(flat.view(), w.view(), groups, y); }, {"[30]"});
    refuses([&] { grouped_forward(a.view(), a.view(), groups, y); }, {"w", "[30, 40]"});
    refuses([&] { grouped_dgrad(a.view(), w.view(), groups, y); }, {"[30, 40]", "20"});
    Tensor short_y = make_poisoned(Format::f32, {29, 20});
    refuses([&] { grouped_forward(a.view(), w.view(), groups, short_y); }, {"[29, 20]", "[30, 20]"});
    refuses([&] { grouped_wgrad(dy.view(), wide.view(), groups, 1, dw); }, {"[2, 20, 40]", "[2, 20, 41]"});
    const Tensor fewer = make_normal(Format::bf16, {29, 20}, random);
    refuses([&] { grouped_wgrad(fewer.view(), a.view(), groups, 1, dw); }, {"29", "30"});
}

TEST_F(ProductErrors, Offsets) {
    const std::vector<std::int32_t> three{1, 2, 3}, backwards{10, 9}, past{10, 31}, negative{-1, 5};
    refuses([&] { grouped_forward(a.view(), w.view(), groups_of(three), y); }, {"3 groups", "2"});
    refuses([&] { grouped_forward(a.view(), w.view(), groups_of(backwards), y); }, {"9", "10"});
    refuses([&] { grouped_forward(a.view(), w.view(), groups_of(past), y); }, {"31", "30"});
    refuses([&] { grouped_forward(a.view(), w.view(), groups_of(negative), y); }, {"-1"});
    refuses([&] { grouped_forward(a.view(), w.view(), {nullptr, 2, {}}, y); }, {"null"});
    refuses([&] { grouped_wgrad(dy.view(), a.view(), groups_of(past), 1, dw); }, {"31", "30"});
    const std::vector<std::int32_t> much{40, 80};
    refuses([&] { grouped_wgrad(qdy_columns.operand(), qa_columns.operand(), groups_of(much), 16, dw); }, {"80"});
    const std::vector<std::int32_t> odd{17, 34};
    refuses([&] { grouped_wgrad(qdy_columns.operand(), qa_columns.operand(), groups_of(odd), 16, dw); }, {"64"});
    const std::vector<std::int32_t> all{17, 33};  // 48 columns
    QuantizedView narrow = qdy_columns.view();
    narrow.data.extents.shape[1] = 47;
    refuses(
        [&] {
            grouped_wgrad({narrow, Scaling::rowwise}, qa_columns.operand(), groups_of(all), 16, dw);
        },
        {"47", "48"});
}

TEST_F(ProductErrors, FormatsAndScalings) {
    auto wb = quantized_weights(w, WeightOrientation::along_k, blockwise);
    refuses([&] { grouped_forward(qa.operand(), wb.operand(), groups, y); }, {"rowwise", "blockwise"});
    refuses([&] { grouped_forward(Operand(qa.view(), Scaling::blockwise), wb.operand(), groups, y); },
            {"[30]", "[30, 1]"});
    refuses([&] { grouped_wgrad(qdy_columns.operand(), a.view(), groups, 16, dw); }, {"e4m3", "bf16"});
    QuantizedView no_scales = qa.view();
    no_scales.inverse = {};
    refuses([&] { grouped_forward(Operand(no_scales, Scaling::rowwise), wk.operand(), groups, y); },
            {"inverse", "null"});
    ConstQuantizedView plain_with_scales(a.view(), {}, qa.view().inverse);
    refuses([&] { grouped_forward(Operand(plain_with_scales, Scaling::rowwise), wk.operand(), groups, y); }, {"bf16"});
    const Tensor bytes = make_poisoned(Format::e8m0, {30, 40});
    refuses([&] { grouped_forward(bytes.view(), w.view(), groups, y); }, {"e8m0"});
    Tensor y8 = make_poisoned(Format::e4m3, {30, 20}), half = make_poisoned(Format::bf16, {2, 20, 40});
    refuses([&] { grouped_forward(a.view(), w.view(), groups, y8); }, {"e4m3", "f32"});
    refuses([&] { grouped_wgrad(qdy_columns.operand(), qa_columns.operand(), groups, 16, half, {Update::add}); },
            {"bf16", "f32"});
    refuses([&] { grouped_wgrad(qdy_columns.operand(), qa_columns.operand(), groups, 0, dw); }, {"alignment"});
}

TEST_F(ProductErrors, SharedMemoryAndUnreachableBackends) {
    Tensor square = make_normal(Format::f32, {30, 20}, random);
    const Tensor small = make_normal(Format::f32, {2, 20, 20}, random);
    refuses([&] { grouped_forward(square.view(), small.view(), groups, square.view()); }, {"share memory"});
    Tensor over = make_normal(Format::f32, {30, 20}, random);
    auto* inside = over.as<std::int32_t>();
    inside[0] = 12, inside[1] = 30;
    refuses(
        [&] {
            grouped_forward(a.view(), w.view(), Groups{inside, 2, {}}, over.view());
        },
        {"the group offsets", "share memory"});
    EXPECT_THROW(grouped_forward(a.view(), w.view(), groups, y, {}, {Backend::hip}), Error);
    TensorView elsewhere = y.view();
    elsewhere.device = {DeviceKind::cuda, 0};
    refuses([&] { grouped_forward(a.view(), w.view(), groups, elsewhere); }, {"cpu", "cuda:0"});
}

}  // namespace
}  // namespace octet::testing
