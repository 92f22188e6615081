// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>

#include "sweep/measurement.hpp"
#include "sweep/run.hpp"

/// \file
/// The runs that a check compares a case with.

namespace kformer::drivers {

/// What a run that checks a case computed.
struct ReferenceResult {
  measure::HostArrays arrays;  ///< the judged rows
  std::string kernels;         ///< "function:kernel ...", what ran
};

/// Makes such runs, and keeps the results of the last ones: cases that differ in what is measured share them.
class ReferenceRuns {
 public:
  /// The results of a run, forward and if `gradients` backward.
  /// \param key     tells this run from others
  /// \param kernels forced, in the form of KFORMER_KERNEL
  /// \param make    the run
  /// \param stop    asked before each pass, and as by `Run::prepare`
  /// \returns nothing if it was stopped
  std::optional<ReferenceResult> get(const std::string& key, const std::string& kernels, bool gradients,
                                     const MakeRun& make, const std::function<bool()>& stop);

 private:
  std::map<std::string, ReferenceResult> m_results;
};

/// Bytes that a check takes: those of the larger of two runs, and host copies of the judged rows of the case and
/// both runs.
std::size_t check_bytes(const MakeRun& reference, const MakeRun& naive, bool gradients);

}  // namespace kformer::drivers
