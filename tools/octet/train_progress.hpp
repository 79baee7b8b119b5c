// What a person sees of a run: one live line on a terminal, plain lines elsewhere.
#pragma once

#include <string>

#include "train/loop.hpp"

namespace octet::tool {

class Progress : public train::RunObserver {
public:
    // `label` stands before every line (a recipe, when several are compared); `log_every` is for plain lines.
    Progress(std::string label, std::int64_t log_every);
    ~Progress() override;
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void started(const train::RunDescription& description, std::int64_t first_step) override;
    void stepped(const train::StepMetrics& metrics) override;
    void evaluated(const train::EvalMetrics& metrics) override;
    void noted(const std::string& sentence) override;

private:
    void say(const std::string& line);  // a line that stays
    void clear_live_line();

    std::string label_;
    std::int64_t log_every_, steps_ = 0;
    double seconds_a_step_ = 0;  // smoothed, for the time left
    bool live_ = false, line_is_up_ = false;
};

std::string thousands(double value);     // 8.4k
std::string clock_time(double seconds);  // 1:02
std::string bytes_text(double bytes);    // 12.3 MiB

}  // namespace octet::tool
