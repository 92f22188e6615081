// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "train/history.hpp"

namespace kformer::drivers {

/// Operations of a training for each token; see `training_flops_per_token`.
struct TokenFlops {
  double of_weights = 0;    ///< whatever the length of its sequence
  double of_attention = 0;  ///< for each token of its sequence

  /// With sequences of this length.
  double at(double length) const { return of_weights + of_attention * length; }
};

/// What a line of progress needs besides the steps.
struct ProgressScale {
  std::int64_t steps = 0;      ///< of the training
  TokenFlops flops;            ///< of a token
  double flop_rate_limit = 0;  ///< of the machine; NaN if unknown
  std::string memory;          ///< in words
};

/// What a step takes and computes, lately: running means.
struct Pace {
  double seconds = 0;  ///< 0 if unknown
  double tokens = 0;   ///< as `ComputedTokens::tokens`
  double pairs = 0;    ///< as `ComputedTokens::pairs`
};

/// "  accuracy 0.75  margin 0.013" in the order of names; empty if there are no figures.
std::string figures_text(const Figures& figures);

/// "step 40/100  loss 2.345  lr 1.00e-03  norm 0.81  12.3k tokens/s  MFU 31 %  1.20 GiB  ETA 3 min".
std::string progress_line(const ProgressScale& scale, const StepRecord& step, const Pace& pace);

/// Shows how a training goes: on a terminal one line that is written again and again, in a log lines of their own,
/// at a bounded rate.
class Progress {
 public:
  Progress(ProgressScale scale, std::FILE* out);

  /// After each step. The times of steps that were profiled do not count.
  void step(const StepRecord& step);
  /// A line that stays, such as an evaluation.
  void say(const std::string& line);
  /// Ends the line of the last step.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void show(const std::string& line);

  ProgressScale m_scale;
  std::FILE* m_out;
  bool m_terminal;
  bool m_open = false;  // whether the cursor is behind a line
  Pace m_pace;
  StepRecord m_last;
  bool m_shown = true;  // whether the last step is
  Clock::time_point m_next = Clock::now();
};

}  // namespace kformer::drivers
