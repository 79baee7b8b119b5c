#include "train_progress.hpp"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace octet::tool {
namespace {

std::size_t terminal_width() {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 120;
}

}  // namespace

std::string thousands(double value) {
    if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
    return value >= 1e3 ? fmt::format("{:.1f}k", value / 1e3) : fmt::format("{:.0f}", value);
}

std::string clock_time(double seconds) {
    const auto whole = static_cast<long long>(std::lround(seconds));
    if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string bytes_text(double bytes) {
    const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; ++unit) bytes /= 1024;
    return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, units[unit]);
}

Progress::Progress(std::string label, std::int64_t log_every)
    : label_(std::move(label)), log_every_(log_every), live_(isatty(STDOUT_FILENO) != 0) {}

Progress::~Progress() { clear_live_line(); }

void Progress::clear_live_line() {
    if (line_is_up_) fmt::print("\r\033[K");
    line_is_up_ = false;
}

void Progress::say(const std::string& line) {
    clear_live_line();
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

void Progress::started(const train::RunDescription& d, std::int64_t first_step) {
    steps_ = d.steps;
    const double epochs =
        static_cast<double>(d.steps) * static_cast<double>(d.tokens_per_step) / static_cast<double>(d.training_tokens);
    say(fmt::format("{}: {} parameters, {} steps of {} tokens ({:.2f} epochs of {}), seed {}{}", label_,
                    thousands(static_cast<double>(d.parameters)), d.steps, d.tokens_per_step, epochs, d.data, d.seed,
                    first_step > 0 ? fmt::format(", from step {}", first_step) : ""));
}

void Progress::stepped(const train::StepMetrics& m) {
    // The first steps fault in memory; later ones say more about the rest.
    seconds_a_step_ = m.step <= 2 || seconds_a_step_ == 0 ? m.seconds : 0.95 * seconds_a_step_ + 0.05 * m.seconds;
    const bool plain = m.step % log_every_ == 0 || m.step == 1 || m.step == steps_;
    if (!live_ && !plain) return;
    const double casts = 100 * m.cast_share(), products = 100 * m.product_share();
    std::string line = fmt::format(
        "{} step {}/{}  loss {:.4f}  norm {:.2f}  lr {:.1e}  {} tok/s  casts {:.0f}% products {:.0f}% rest {:.0f}%  "
        "balance {:.2f}  {} left",
        label_, m.step, steps_, m.loss, m.gradient_norm, m.learning_rate, thousands(m.tokens_per_second()), casts,
        products, 100 - casts - products, m.imbalance(),
        clock_time(seconds_a_step_ * static_cast<double>(steps_ - m.step)));
    if (!live_) return say(line);
    if (line.size() >= terminal_width()) line.resize(terminal_width() - 1);
    fmt::print("\r{}\033[K", line);
    std::fflush(stdout);
    line_is_up_ = true;
}

void Progress::evaluated(const train::EvalMetrics& m) {
    const double loss = std::isnan(m.loss) ? std::abs(m.loss) : m.loss;  // a sign of NaN means nothing
    say(fmt::format("{} step {}/{}  eval loss {:.4f}  perplexity {:.2f}", label_, m.step, steps_, loss,
                    std::exp(loss)));
}

void Progress::noted(const std::string& sentence) { say(fmt::format("{}: {}", label_, sentence)); }

}  // namespace octet::tool
