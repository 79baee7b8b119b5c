#include "train/checkpoint.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include "octet/error.hpp"
#include "temporary_folder.hpp"

namespace octet::train {
namespace {

namespace fs = std::filesystem;
using testing::error_of;
using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

struct Contents {
    std::vector<std::int32_t> weights, moments;
    explicit Contents(std::int32_t value, std::size_t size = 1000) : weights(size, value), moments(size, -value) {}
    CheckpointTensors tensors() {
        return {{stored("weights", std::span(weights))}, {stored("moments", std::span(moments))}};
    }
};

CheckpointState state_of(std::int64_t step) {
    CheckpointState state;
    state.step = step;
    state.optimizer_steps = step;
    state.tokens_seen = 100 * step;
    state.config = "[model]\nhidden = 8\n";
    state.recipe = "fp8_rowwise";
    state.seed = 0xFFFFFFFFFFFFFFFFu;
    state.random = 0x8000000000000001u;
    state.data = {"a \"text\".txt", "bytes", "0123456789abcdef", 12345, 7, 3 * step};
    return state;
}

void save(const fs::path& root, std::int64_t step, int keep = 3) {
    Contents contents(static_cast<std::int32_t>(step));
    save_checkpoint(root, state_of(step), contents.tensors(), keep);
}

TEST(Checkpoint, WhatIsSavedIsLoaded) {
    const TemporaryFolder folder;
    save(folder.path(), 12);
    const Checkpoint checkpoint(*newest_checkpoint(folder.path()));
    EXPECT_EQ(checkpoint.folder().filename(), "step-00000012");
    EXPECT_EQ(checkpoint.state().data, state_of(12).data);
    EXPECT_EQ(checkpoint.state().seed, state_of(12).seed);
    EXPECT_EQ(checkpoint.state().random, state_of(12).random);
    EXPECT_EQ(checkpoint.state().config, state_of(12).config);
    EXPECT_EQ(checkpoint.state().tokens_seen, 1200);
    Contents loaded(0);
    checkpoint.load(loaded.tensors());
    EXPECT_EQ(loaded.weights, Contents(12).weights);
    EXPECT_EQ(loaded.moments, Contents(12).moments);
}

TEST(Checkpoint, KeepsTheLastOnes) {
    const TemporaryFolder folder;
    for (const std::int64_t step : {5, 10, 100000000, 20, 15}) save(folder.path(), step, 3);
    std::vector<std::string> names;
    for (const fs::path& path : list_checkpoints(folder.path())) names.push_back(path.filename().string());
    EXPECT_EQ(names, (std::vector<std::string>{"step-00000015", "step-00000020", "step-100000000"}));
    for (const auto& entry : fs::directory_iterator(folder.path()))
        EXPECT_EQ(entry.path().filename().string().rfind("step-", 0), 0u) << entry.path();
}

TEST(Checkpoint, SavesTheSameStepAgain) {
    const TemporaryFolder folder;
    save(folder.path(), 4);
    Contents other(99);
    save_checkpoint(folder.path(), state_of(4), other.tensors(), 1);
    Contents loaded(0);
    Checkpoint(folder / "step-00000004").load(loaded.tensors());
    EXPECT_EQ(loaded.weights, other.weights);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Checkpoint, FindsTheNewestOfARun) {
    const TemporaryFolder folder;
    EXPECT_NE(error_of([&] { find_checkpoint(folder.path()); }).find("there is no checkpoint in"), std::string::npos);
    EXPECT_NE(error_of([&] { find_checkpoint(folder / "no"); }).find("does not exist"), std::string::npos);
    save(folder / "checkpoints", 1);
    save(folder / "checkpoints", 2);
    EXPECT_EQ(find_checkpoint(folder.path()).filename(), "step-00000002");
    EXPECT_EQ(find_checkpoint(folder / "checkpoints").filename(), "step-00000002");
    EXPECT_EQ(find_checkpoint(folder / "checkpoints/step-00000001").filename(), "step-00000001");
}

TEST(Checkpoint, RefusesEveryTruncationAndAlteration) {
    const TemporaryFolder folder;
    save(folder.path(), 3);
    const fs::path at = folder / "step-00000003";
    for (const std::string& name :
         std::vector<std::string>{"model.safetensors", "optimizer.safetensors", "state.json"}) {
        const std::string good = read_text(at / name);
        const auto refused = [&](const std::string& bad) {
            write_text(at / name, bad);
            Contents loaded(0);
            const std::string error = error_of([&] { Checkpoint(at).load(loaded.tensors()); });
            // Nothing was copied, not even from the file that is whole.
            EXPECT_EQ(loaded.weights, Contents(0).weights);
            EXPECT_NE(error.find(name), std::string::npos) << error;
            return !error.empty();
        };
        for (std::size_t i = 0; i < good.size(); i += 1 + good.size() / 50) {
            EXPECT_TRUE(refused(good.substr(0, i))) << name << " cut at " << i;
            std::string altered = good;
            altered[i] = static_cast<char>(altered[i] ^ 1);
            // A state whose white space changed says the same.
            if (name != "state.json" || !std::isspace(static_cast<unsigned char>(good[i]))) {
                EXPECT_TRUE(refused(altered)) << name << " altered at " << i;
            }
        }
        EXPECT_TRUE(refused(good + "x")) << name;
        fs::remove(at / name);
        EXPECT_NE(error_of([&] {
                      Contents loaded(0);
                      Checkpoint(at).load(loaded.tensors());
                  }),
                  "");
        write_text(at / name, good);
    }
    Contents loaded(0);
    Checkpoint(at).load(loaded.tensors());
    EXPECT_EQ(loaded.weights, Contents(3).weights);
}

TEST(Checkpoint, RefusesAnotherModel) {
    const TemporaryFolder folder;
    save(folder.path(), 3);
    Contents smaller(0, 10);
    const std::string error = error_of([&] { Checkpoint(folder / "step-00000003").load(smaller.tensors()); });
    EXPECT_NE(error.find("tensor 'weights' is I32 [1000]"), std::string::npos) << error;
    EXPECT_NE(error.find("I32 [10] in this model"), std::string::npos) << error;
    EXPECT_EQ(first_model_difference("[model]\nlayers = 2\nhidden = 8\n\n[training]\nsteps = 3\n",
                                     "[model]\nlayers = 2\nhidden = 16\n\n[training]\nsteps = 9\n"),
              "the checkpoint has [model] hidden = 8 and this model has [model] hidden = 16");
    EXPECT_EQ(first_model_difference("[model]\nlayers = 2\n[training]\nsteps = 3\n",
                                     "[model]\nlayers = 2\n[training]\nsteps = 9\n"),
              "");
}

TEST(Checkpoint, AFullDiskLeavesTheOldOneAlone) {
    const TemporaryFolder folder;
    save(folder.path(), 1);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    // Room for none, for part of the first file, for the first and part of the second.
    for (const rlim_t room : {0u, 100u, 4000u, 4200u}) {
        rlimit limit = before;
        limit.rlim_cur = room;
        setrlimit(RLIMIT_FSIZE, &limit);
        Contents contents(2, room == 4200 ? 900 : 1000);
        contents.moments.resize(2000);
        const std::string error = error_of([&] { save_checkpoint(folder.path(), state_of(2), contents.tensors(), 1); });
        setrlimit(RLIMIT_FSIZE, &before);
        EXPECT_NE(error.find("could not"), std::string::npos) << error;
        EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
        Contents loaded(0);
        Checkpoint(*newest_checkpoint(folder.path())).load(loaded.tensors());
        EXPECT_EQ(loaded.weights, Contents(1).weights);
    }
    signal(SIGXFSZ, handler);
    save(folder.path(), 2, 1);
    EXPECT_EQ(newest_checkpoint(folder.path())->filename(), "step-00000002");
}

TEST(Checkpoint, LeftoversOfAKillAreNotCheckpoints) {
    const TemporaryFolder folder;
    save(folder.path(), 1);
    fs::create_directory(folder / ".writing-step-00000002");
    write_text(folder / ".writing-step-00000002/model.safetensors", "half");
    fs::create_directory(folder / ".removing-step-00000000");
    EXPECT_EQ(newest_checkpoint(folder.path())->filename(), "step-00000001");
    remove_leftovers(folder.path());
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Checkpoint, AStateThatIsNestedEndlesslyIsRefused) {
    const TemporaryFolder folder;
    save(folder.path(), 1);
    const fs::path file = folder.path() / "step-00000001/state.json";
    const std::string text = read_text(file), nested = std::string(1000000, '[') + std::string(1000000, ']');
    write_text(file, text.substr(0, text.rfind('}')) + ", \"more\": " + nested + "}");
    const std::string error = error_of([&] { const Checkpoint checkpoint(file.parent_path()); });
    EXPECT_NE(error.find("nested too deeply"), std::string::npos) << error;
}

TEST(ReplaceFile, KeepsTheOldFileWhereWritingFails) {
    const TemporaryFolder folder;
    const fs::path file = folder.path() / "file", link = folder.path() / "link";
    write_text(file, "old");
    fs::create_symlink(file, link);
    const auto half = [](const fs::path& path) {
        write_text(path, "ne");
        fail(Status::io_error, "no room");
    };
    EXPECT_NE(error_of([&] { replace_file(link, half); }).find("no room"), std::string::npos);
    EXPECT_EQ(read_text(file), "old");
    write_in_place(link, "new");
    EXPECT_EQ(read_text(file), "new");
    EXPECT_TRUE(fs::is_symlink(link));
    write_in_place("/dev/null", "anything");
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
}

}  // namespace
}  // namespace octet::train
