// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/model/recompute_costs.hpp"
#include "learner/learner.hpp"

/// \file
/// Which layers keep what, so that a training fits into its memory.

namespace kformer::drivers {

/// The rates by which schedules are compared. They are the same on every machine and in every run: rates that were
/// measured differ from one run to the next, and with them would the schedule and the forecast of a deck. Only devices
/// offload: transfers have their proportions, 8000 operations in the time of a byte, as of 200 TFLOP/s and 25 GB/s.
inline constexpr MachineRates rates_to_compare{.flops = 5e10, .bytes = 1e10, .transfers = 6.25e6};

/// How a rank of a training uses memory.
struct MemoryDecision {
  RecomputeSchedule schedule;              ///< what layers keep
  std::shared_ptr<const Ledger> forecast;  ///< bytes by class, to the byte
  std::size_t bytes_in_space = 0;          ///< of those, the peak in the memory of the execution space
  double extra_seconds = 0;                ///< of recomputation in a micro-batch, by `rates_to_compare`
};

/// Ranks that divide layers or tokens exchange messages wherever a layer runs again, so that all of them need one plan:
/// returns the least of the numbers that they pass. Plans ascend in memory, and are the same for all.
using PlanAgreement = std::function<std::size_t(std::size_t plan)>;

/// Checks that a policy can be had in a space.
/// \throws NotSupported if it needs a device
void require_policy(const std::string& space, Recompute recompute);

/// Takes the policy of the deck or, for `auto`, the fastest schedule whose forecast is within `limit`, or else the one
/// that needs least.
/// \param ranks that need one plan, all but `recompute`: at least one. The memory is that of the one that needs most
/// \param limit bytes that a rank may take in the memory of the execution space; nothing: no limit. Host memory that
///              layers are offloaded to does not count against the limit of a device.
/// \param agree for `auto` with a limit; none: nobody else needs the same plan
MemoryDecision forecast_memory(const std::string& space, std::vector<LearnerTask> ranks, Recompute recompute,
                               std::optional<std::size_t> limit, const PlanAgreement& agree = {});

/// As `forecast_memory`.
/// \throws OutOfMemory with the forecast by class and what would need less, if `bytes_in_space` exceed `limit`
MemoryDecision decide_memory(const std::string& space, std::vector<LearnerTask> ranks, Recompute recompute,
                             std::optional<std::size_t> limit, const PlanAgreement& agree = {});

/// Estimated time of recomputation in a micro-batch on a machine with these rates.
double recompute_time(const std::string& space, const LearnerTask& task, const RecomputeSchedule& schedule,
                      const MachineRates& rates);

/// Estimated time of forward and backward of a micro-batch, without recomputation.
double micro_batch_seconds(const LearnerTask& task, const MachineRates& rates);

/// The schedule in words: "nested (8 layers, 3 inputs kept), 4 x pointwise".
std::string schedule_text(const RecomputeSchedule& schedule);

/// Bytes by class, in one line.
std::string bytes_by_class(const Ledger& ledger);

}  // namespace kformer::drivers
