// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "kformer/core/types/schedule_kind.hpp"

/// \file
/// Learning rates that depend on the step. Free of Kokkos.

namespace kformer {

/// The learning rate η of every step t = 0, 1, …, n − 1 of a training run. With w steps of warm-up,
///
///     η(t) = lr·(t + 1)/w                        for t < w,
///     η(t) = lr                                  constant
///     η(t) = lr + (min − lr)·p                   linear, with p = (t − w)/(n − w)
///     η(t) = min + (lr − min)·½·(1 + cos(π·p))   cosine (Loshchilov & Hutter, arXiv:1608.03983, eq. 5)
///     η(t) = lr + (min − lr)·max(0, q)           wsd, with q = (t − (n − d))/d over the last d steps (Hu et al.,
///                                                arXiv:2404.06395, sect. 4)
///
/// From step n on, all but the constant one are at `min`.
struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::constant;  ///< the course after the warm-up
  double learning_rate = 1e-3;                 ///< lr, the largest
  double min_learning_rate = 0;                ///< min, towards which it falls
  std::int64_t steps = 0;                      ///< n; the constant schedule needs none
  std::int64_t warmup_steps = 0;               ///< w
  std::int64_t decay_steps = 0;  ///< d, of wsd; 0: a fifth of `steps`, at least 1. It begins after the warm-up.

  /// The learning rate of step `step`, counted from 0.
  double at(std::int64_t step) const;

  /// Checks all members.
  /// \throws NotSupported naming the member that is out of range
  void check() const;
};

}  // namespace kformer
