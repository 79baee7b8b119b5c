// The model at the C ABI: what it refuses leaves everything as it was.
#include "octet/octet_train.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "train/temporary_folder.hpp"

namespace {

constexpr const char* toy = R"([model]
vocabulary = 64
layers = 1
hidden = 16
heads = 1
sequence_length = 8
[experts]
count = 4
per_token = 2
intermediate = 16
[router]
balance = "bias"
)";

struct Model {
    octet_model* handle = nullptr;
    Model() { EXPECT_EQ(octet_model_create(toy, "fp8_rowwise", "bf16", "f32", 1, 1, &handle), OCTET_OK); }
    ~Model() { octet_model_destroy(handle); }
    Model(const Model&) = delete;
    Model& operator=(const Model&) = delete;
};

std::vector<float> gradients(const octet_model* model) {
    std::vector<float> all;
    int64_t count = 0;
    EXPECT_EQ(octet_model_parameter_count(model, &count), OCTET_OK);
    for (int64_t i = 0; i < count; ++i) {
        float* gradient = nullptr;
        int32_t rank = 0;
        int64_t shape[4] = {1, 1, 1, 1};
        EXPECT_EQ(octet_model_parameter(model, i, nullptr, nullptr, &gradient, &rank, shape, nullptr), OCTET_OK);
        all.insert(all.end(), gradient, gradient + shape[0] * shape[1] * shape[2] * shape[3]);
    }
    return all;
}

TEST(TrainCApi, AFailedSaveLeavesTheOldFile) {
    const octet::train::testing::TemporaryFolder folder;
    const std::string path = (folder.path() / "model.safetensors").string();
    octet::train::testing::write_text(path, "old");
    const Model model;
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit small{4096, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const octet_status status = octet_model_save(model.handle, path.c_str());
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    EXPECT_EQ(status, OCTET_IO_ERROR);
    EXPECT_EQ(octet::train::testing::read_text(path), "old");
    EXPECT_EQ(octet_model_save(model.handle, path.c_str()), OCTET_OK);
    EXPECT_GT(octet::train::testing::read_text(path).size(), 4096u);
}

TEST(TrainCApi, ARefusedBatchChangesNothing) {
    const Model model;
    const int32_t tokens[4] = {1, 2, 3, 4}, bad[4] = {1, 2, 3, 64};
    const auto call = [&](const int32_t* of, const int32_t* targets, double scale) {
        return octet_model_forward_backward(model.handle, of, targets, 1, 4, scale, nullptr, nullptr);
    };
    EXPECT_EQ(call(bad, tokens, 1), OCTET_INVALID_ARGUMENT);
    EXPECT_EQ(call(tokens, bad, 1), OCTET_INVALID_ARGUMENT);
    EXPECT_NE(std::string(octet_last_error()).find("target 3 is 64"), std::string::npos) << octet_last_error();
    EXPECT_EQ(call(tokens, tokens, 1e308), OCTET_INVALID_ARGUMENT);
    const std::vector<float> all = gradients(model.handle);
    EXPECT_TRUE(std::all_of(all.begin(), all.end(), [](float value) { return value == 0; }));
    EXPECT_EQ(octet_model_loss(model.handle, tokens, tokens, 1, 4, nullptr), OCTET_INVALID_ARGUMENT);
    EXPECT_EQ(octet_adamw_create(model.handle, nullptr), OCTET_INVALID_ARGUMENT);
}

// Nor has a refused batch counted in the balance of experts, which a step moves their bias by.
TEST(TrainCApi, ARefusedBatchIsNotCounted) {
    const octet::train::testing::TemporaryFolder folder;
    const int32_t tokens[4] = {1, 2, 3, 4}, others[4] = {60, 61, 62, 63}, bad[4] = {1, 2, 3, 64};
    const auto saved_after = [&](bool refused) {
        const Model model;
        if (refused) {
            EXPECT_EQ(octet_model_forward_backward(model.handle, others, bad, 1, 4, 1, nullptr, nullptr),
                      OCTET_INVALID_ARGUMENT);
        }
        EXPECT_EQ(octet_model_forward_backward(model.handle, tokens, tokens, 1, 4, 1, nullptr, nullptr), OCTET_OK);
        octet_adamw* optimizer = nullptr;
        EXPECT_EQ(octet_adamw_create(model.handle, &optimizer), OCTET_OK);
        EXPECT_EQ(octet_adamw_step(optimizer, 1e-3, nullptr), OCTET_OK);
        octet_adamw_destroy(optimizer);
        const std::string path = (folder.path() / "model.safetensors").string();
        EXPECT_EQ(octet_model_save(model.handle, path.c_str()), OCTET_OK);
        return octet::train::testing::read_text(path);
    };
    EXPECT_TRUE(saved_after(true) == saved_after(false));
}

}  // namespace
