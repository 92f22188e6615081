// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decks/engine/deck.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/machine.hpp"
#include "measure/memory_available.hpp"
#include "measure/profiler.hpp"
#include "sweep/run.hpp"

/// \file
/// The measurement of a case of any kind.

namespace kformer::drivers {

/// How a case ended; the names are those of the flag column `status`.
enum class CaseStatus { ok, failed_check, unchecked, out_of_memory, error, skipped_memory, unsupported };
/// The names of CaseStatus, in order.
inline const std::vector<std::string> case_status_names{
    "ok", "failed_check", "unchecked", "out_of_memory", "error", "skipped_memory", "unsupported"};

/// The results of one case.
struct Measurement {
  CaseStatus status = CaseStatus::error;  ///< how it ended
  std::string message;                    ///< why, if not ok
  std::string kernels;                    ///< "linear_forward:host_blas rope_forward:kokkos ...", what ran
  measure::Samples samples;               ///< of the direction
  double flops = 0;                       ///< of one call
  double bytes_min = 0;                   ///< compulsory traffic of one call
  measure::CaseLimits limits;             ///< the larger of those before and after the samples
  /// How far those before and after are apart, relative to the larger. NaN if that is not known.
  double limits_change = std::numeric_limits<double>::quiet_NaN();
  /// Time in which threads waited for a core, over that of the samples: `core_wait_share`. NaN if that is not known.
  double core_wait_share = std::numeric_limits<double>::quiet_NaN();
  std::array<std::size_t, memory_classes> peak{};  ///< ledger's peak by class
  std::size_t peak_total = 0;                      ///< ledger's peak of all classes together
  std::size_t predicted = 0;                       ///< forecast of peak_total by counting
  std::size_t check_bytes = 0;  ///< forecast of what the check takes after the case; 0 without one
  std::size_t check_held = 0;   ///< the part of it that checks of earlier cases left allocated
  std::string check_kernels;    ///< what ran for the reference of the check
  std::map<std::string, std::uint64_t>
      witnessed;  ///< peak bytes by memory space, as Kokkos reports its allocations
  std::optional<measure::DeviceMemory> on_device;  ///< memory of the GPU while the case held its own
  double max_abs_err = std::numeric_limits<double>::quiet_NaN();   ///< NaN if unchecked
  double max_rel_err = std::numeric_limits<double>::quiet_NaN();   ///< NaN if unchecked
  double mean_abs_err = std::numeric_limits<double>::quiet_NaN();  ///< NaN if unchecked
  double loss_scale = 1;                                           ///< at the end
  double gradient_norm =
      std::numeric_limits<double>::quiet_NaN();        ///< of the last step, NaN if it was not needed
  std::int64_t counted_steps = 0;                      ///< of those with an optimizer
  std::int64_t skipped_steps = 0;                      ///< for gradients that were not finite
  std::vector<measure::Profiler::RegionTime> regions;  ///< of the profiling pass
  std::vector<measure::Profiler::KernelTime> profile;  ///< of the profiling pass
};

/// How a case is measured.
struct MeasuringPlan {
  Direction direction = Direction::forward;               ///< what is timed
  std::optional<ResultRows> keep_results;                 ///< the results that are wanted
  const TimingTable* timing = nullptr;                    ///< samples
  const ProfileTable* profile = nullptr;                  ///< what besides time
  std::function<bool()> stop = nullptr;                   ///< called between samples
  std::function<measure::CaseLimits()> limits = nullptr;  ///< called before and after the case
};

/// Whether `error` is a lack of memory, which is then written into `measurement`.
/// \throws OutOfMemory if it is and `on_oom` says abort
bool record_out_of_memory(const std::exception& error, OnOutOfMemory on_oom, Measurement& measurement);

/// Calls `run` and, if that throws, writes into `measurement` how the case ended.
/// \throws OutOfMemory if `on_oom` says abort
void record_failure(OnOutOfMemory on_oom, Measurement& measurement, const std::function<void()>& run);

/// Bytes that the run books in the ledger, found by counting: no memory is taken.
std::size_t predicted_bytes(const MakeRun& make);

/// Makes the run, runs it, and records its kernels, samples, memory and profile. The first call warms up, gives
/// the results and is profiled; it is no timing sample.
/// \returns what the first call computed, if wanted
/// \throws OutOfMemory with the ledger
measure::HostArrays measure_run(const MakeRun& make, const MeasuringPlan& plan, Measurement& measurement);

}  // namespace kformer::drivers
