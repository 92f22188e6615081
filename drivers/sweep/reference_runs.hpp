// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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
  /// \returns null if it was stopped
  std::shared_ptr<ReferenceResult> get(const std::string& key, const std::string& kernels, bool gradients,
                                       const MakeRun& make, const std::function<bool()>& stop);

  /// Bytes of the results that are kept.
  std::size_t held_bytes() const;

 private:
  std::map<std::string, std::shared_ptr<ReferenceResult>> m_results;
};

/// Runs that set the limits of a case. `kernels` are forced; null if it was stopped.
struct NaiveRuns {
  /// The naive computation.
  std::function<std::shared_ptr<ReferenceResult>(const std::string& kernels)> naive;
  /// The computation of the case in double.
  std::function<std::shared_ptr<ReferenceResult>(const std::string& kernels)> in_double;
};

/// Judges the results of a case and writes status and message into `result`. The naive computation runs
/// `kernels`, none of the case. If results are out of tolerance and the case ran portable kernels that sum, these
/// may be right but less exact than the others: if they agree with the reference in double, they set the limits.
/// \param exact  the reference
/// \param dtype  of the case
/// \param stored the storage type of a result, by name
/// \param independent_rows as of `judge`
void judge_case(const measure::HostArrays& results, const ReferenceResult& exact, const std::string& kernels,
                const NaiveRuns& runs, DType dtype, const std::function<DType(const std::string&)>& stored,
                std::size_t independent_rows, Measurement& result);

/// Writes into `result` the memory of a check: that of the largest of its runs, host copies of the judged rows
/// of the case and of two runs, and the results that are kept.
/// \param runs      one after the other
/// \param gradients whether backward is checked
void forecast_check(const std::vector<MakeRun>& runs, bool gradients, const ReferenceRuns& kept,
                    Measurement& result);

}  // namespace kformer::drivers
