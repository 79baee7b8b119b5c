// Runs the calls of gpu/ops.hpp in the emulator: the Runner of the tests.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <typeinfo>
#include <vector>

#include "emulator/grid.hpp"
#include "gpu/layout_ops.hpp"
#include "gpu/ops.hpp"

namespace octet::gpu {

class EmulatorRunner {
public:
    EmulatorRunner(int width, std::int64_t blocks, const QuantizerTuning& tuning)
        : width_(width), blocks_(blocks), tuning_(tuning) {}

    const QuantizerTuning& tuning() const { return tuning_; }
    void* workspace(std::int64_t bytes) {
        if (visit_ == WeightVisit::second && bytes <= visited_bytes_) return visited_;
        visited_bytes_ = bytes;
        memory_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes) + 256));
        void* at = memory_.back().get();
        std::size_t room = static_cast<std::size_t>(bytes) + 256;
        std::memset(at, 0xCD, room);  // what a kernel must set itself
        return visited_ = std::align(256, static_cast<std::size_t>(bytes), at, room);
    }
    template <class Kernel>
    std::int64_t resident() {
        return blocks_;
    }
    template <class Kernel>
    void launch(std::int64_t blocks, const typename Kernel::Params& params) {
        ++launches_;
        last_ = &typeid(Kernel);
        emulator::launch<Kernel>(blocks, params, width_, 2);
    }
    template <class Kernel>
    void launch_next(std::int64_t blocks, const typename Kernel::Params& params) {
        launch<Kernel>(blocks, params);
    }
    // As a product between the two halves would see it: the second one is launched by run_later().
    template <class Kernel>
    void launch_later(std::int64_t blocks, const typename Kernel::Params& params) {
        later_.push_back([this, blocks, params] { launch<Kernel>(blocks, params); });
    }
    WeightVisit visit() const { return visit_; }
    void set_visit(WeightVisit visit) { visit_ = visit; }
    bool may_wait() const { return may_wait_; }
    void let_wait(bool may) { may_wait_ = may; }
    std::size_t run_later() {
        const std::size_t launched = later_.size();
        for (const auto& start : later_) start();
        later_.clear();
        return launched;
    }
    template <class Kernel>
    void launch_together(std::int64_t blocks, const typename Kernel::Params& params) {
        ++launches_;
        last_ = &typeid(Kernel);
        emulator::launch<Kernel>(blocks, params, width_, static_cast<int>(blocks));
    }
    std::size_t launches() const { return launches_; }  // so far
    template <class Kernel>
    bool launched_last() const {
        return last_ && *last_ == typeid(Kernel);
    }

private:
    int width_;
    std::int64_t blocks_;
    QuantizerTuning tuning_;
    WeightVisit visit_ = WeightVisit::only;
    std::int64_t visited_bytes_ = 0;
    void* visited_ = nullptr;  // the last workspace, which a second visit finds as the first left it
    bool may_wait_ = false;
    std::size_t launches_ = 0;
    const std::type_info* last_ = nullptr;
    std::vector<std::function<void()>> later_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace octet::gpu
