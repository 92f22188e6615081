// SPDX-License-Identifier: MIT
#include "train/progress.hpp"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/say.hpp"

namespace kformer::drivers {

namespace {

constexpr std::chrono::milliseconds terminal_interval{100}, log_interval{5000};
// Weight of the newest step in the means.
constexpr double newest = 0.1;
constexpr int bar_width = 20;

std::string duration(double seconds) {
  if (!(seconds < 1e9)) return "?";
  const auto s = static_cast<std::int64_t>(std::ceil(seconds));
  if (s < 100) return fmt::format("{} s", s);
  if (s < 100 * 60) return fmt::format("{} min", (s + 59) / 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// Without the sign of a NaN.
double shown(double value) { return std::isnan(value) ? std::abs(value) : value; }

std::string rate(double value) {
  if (value >= 1e6) return fmt::format("{:.3g}M", 1e-6 * value);
  return value >= 1e4 ? fmt::format("{:.3g}k", 1e-3 * value) : fmt::format("{:.4g}", value);
}

std::string bar(std::int64_t done, std::int64_t all) {
  const auto full = static_cast<int>(bar_width * done / std::max<std::int64_t>(all, 1));
  return fmt::format("[{}{}] ", std::string(static_cast<std::size_t>(full), '='),
                     std::string(static_cast<std::size_t>(bar_width - full), ' '));
}

}  // namespace

std::string figures_text(const Figures& figures) {
  std::string text;
  for (const auto& [name, value] : figures)
    if (!std::isnan(value)) text += fmt::format("  {} {:.3g}", name, shown(value));
  return text;
}

std::string progress_line(const ProgressScale& scale, const StepRecord& step, const Pace& pace) {
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}{}  lr {:.2e}  norm {:.3g}", step.step + 1, scale.steps,
                  shown(step.loss), figures_text(step.figures), step.learning_rate, shown(step.gradient_norm));
  if (step.loss_scale != 1) line += fmt::format("  scale {:g}", step.loss_scale);
  if (step.skipped) line += "  skipped";
  if (pace.seconds > 0) {
    line += fmt::format("  {} tokens/s", rate(pace.tokens / pace.seconds));
    const double flops = scale.flops.of_weights * pace.tokens + scale.flops.of_attention * pace.pairs;
    if (const double share = flops / pace.seconds / scale.flop_rate_limit; std::isfinite(share))
      line += fmt::format("  MFU {:.0f} %", 100 * share);
  }
  line += "  " + scale.memory;
  if (pace.seconds > 0)
    line += fmt::format("  ETA {}", duration(pace.seconds * static_cast<double>(scale.steps - step.step - 1)));
  return line;
}

Progress::Progress(ProgressScale scale, std::FILE* out)
    : m_scale(std::move(scale)), m_out(out), m_terminal(isatty(fileno(out)) == 1) {}

void Progress::step(const StepRecord& step) {
  if (std::isfinite(step.time)) {
    const double share = m_pace.seconds == 0 ? 1 : newest;
    const auto take = [share](double& mean, double value) { mean += share * (value - mean); };
    take(m_pace.seconds, step.time);
    take(m_pace.tokens, static_cast<double>(step.computed.tokens));
    take(m_pace.pairs, static_cast<double>(step.computed.pairs));
  }
  m_last = step;
  m_shown = false;
  const auto now = Clock::now();
  if (now < m_next) return;
  m_next = now + (m_terminal ? Clock::duration(terminal_interval) : Clock::duration(log_interval));
  show(progress_line(m_scale, step, m_pace));
}

void Progress::show(const std::string& line) {
  m_shown = true;
  if (m_terminal)
    drivers::say(m_out, "\r{}{}\x1b[K", bar(m_last.step + 1, m_scale.steps), line);
  else
    drivers::say(m_out, "{}\n", line);
  m_open = m_terminal;
  std::fflush(m_out);
}

void Progress::say(const std::string& line) {
  finish();
  drivers::say(m_out, "{}\n", line);
  std::fflush(m_out);
}

void Progress::finish() {
  if (!m_shown) show(progress_line(m_scale, m_last, m_pace));
  if (m_open) drivers::say(m_out, "\n");
  m_open = false;
}

}  // namespace kformer::drivers
