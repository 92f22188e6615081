// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>

#include "sweep/measurement.hpp"
#include "sweep/run.hpp"

/// \file
/// The runs that a check compares a case with. None of their kernels is one that the case ran: a fault of a
/// kernel cannot hide by being on both sides.

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
  /// \param stop    as of `Run::prepare`
  ReferenceResult get(const std::string& key, const std::string& kernels, bool gradients, const MakeRun& make,
                      const std::function<bool()>& stop);

 private:
  std::map<std::string, ReferenceResult> m_results;
};

/// The execution space of the reference of a case: the case's own on a host, otherwise a host space.
std::string reference_space(const std::string& space);

/// The portable kernels of all functions: what the naive computation runs.
std::string portable_kernels();

/// The kernels of the reference of a case: the portable ones; of functions for which the case ran those, the
/// best of the others.
/// \param ran "function:kernel ..." of the case
std::string reference_kernels(const std::string& ran);

/// Whether a run chose this kernel for this function; `name` is "function:kernel".
bool has_kernel(const std::string& ran, const std::string& name);

/// The kernels that ran on both sides, "function:kernel ..."; empty if there are none.
std::string shared_kernels(const std::string& ran, const std::string& reference);

/// Bytes that a check takes: those of the larger of two runs, and host copies of the judged rows of the case and
/// both runs.
std::size_t check_bytes(const MakeRun& reference, const MakeRun& naive, bool gradients);

/// Whether the memory of the space holds `result.check_bytes`; otherwise the message says what is missing.
bool fits_check(const std::string& space, Measurement& result);

/// Whether `result.kernels` and `result.check_kernels` have none in common; otherwise the message names them.
bool independent(Measurement& result);

}  // namespace kformer::drivers
