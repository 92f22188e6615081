// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sweep/judge.hpp"
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

/// The naive computation from operands that differ from those of the case in their roundings, and its reference.
struct NaiveSample {
  std::shared_ptr<ReferenceResult> naive, exact;  ///< null if it was stopped
};

/// Runs that set the limits of a case. `kernels` are forced; null if it was stopped.
struct NaiveRuns {
  std::string kernels;  ///< of the naive computation: none of the case
  /// The naive computation.
  std::function<std::shared_ptr<ReferenceResult>(const std::string& kernels)> naive;
  /// The computation of the case in double.
  std::function<std::shared_ptr<ReferenceResult>(const std::string& kernels)> in_double;
  /// In double, with perturbed operands; none: the errors of the naive computation suffice.
  std::function<std::shared_ptr<ReferenceResult>()> perturbed = {};
  long double perturbed_scale = 1;  ///< rounding in the arithmetic of the case, relative to that perturbation
  /// Another sample of the naive computation; `number` is 1, 2 …; none: there is but one.
  std::function<NaiveSample(const std::string& kernels, std::size_t number)> sample = {};
};

/// Judges the results of a case and writes status and message into `result`. A tensor is rejected by a sample of at
/// least 32 rows that have errors of their own: where one naive computation has less, others are added
/// (docs/tolerance.md). If results are out of tolerance and the case ran portable kernels that sum, these may be right but less exact than the others: if they agree with
/// the reference in double, they set the limits.
/// \param exact  the reference
/// \param before "function:kernel ...", what the case ran before it was measured
void judge_case(const JudgedResults& results, const ReferenceResult& exact, const NaiveRuns& runs,
                Measurement& result, const std::string& before = {});

/// Writes into `result` the memory of a check: that of the largest of its runs, host copies of judged rows, and the
/// results that are kept. Samples that are added before a tensor of few rows is rejected take more.
/// \param runs      one after the other
/// \param gradients whether backward is checked
/// \param copies    of the judged rows: those of the case, of the reference, of the naive run …
void forecast_check(const std::vector<MakeRun>& runs, bool gradients, const ReferenceRuns& kept,
                    Measurement& result, std::size_t copies = 3);

}  // namespace kformer::drivers
