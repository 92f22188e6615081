// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>

#include "attention/attention_run.hpp"
#include "attention/attention_tensors.hpp"
#include "sweep/limit_samples.hpp"
#include "sweep/measurement.hpp"
#include "sweep/reference_runs.hpp"

/// \file
/// One case of a comparison, from its point in the sweep to its results.

namespace kformer::drivers {

/// The results of one case.
struct AttentionResult : Measurement {
  AttentionCase point;  ///< complete
};

/// Runs the cases of one deck.
class AttentionSweep {
 public:
  /// `tensors` must outlive the sweep; null means random inputs.
  AttentionSweep(const AttentionCompareDeck& deck, const AttentionTensors* tensors);

  /// Runs one case. `stop` is called between samples. Never throws for faults of the case: these are its
  /// status.
  /// \throws OutOfMemory if the deck says on_oom = "abort"
  AttentionResult run(const AttentionCase& point, const std::function<bool()>& stop);

  /// Judges what a case computed, by kernels that the case did not run. Writes errors, status and message into `result`,
  /// which says what the case was and what ran: `point`, `kernels`.
  /// \param results the judged rows (`judged_part`)
  /// \param stop    called between the runs that the results are compared with
  void check(const measure::HostArrays& results, AttentionResult& result, const std::function<bool()>& stop);

  /// What the last case computed, if the deck asks for an output file; empty if that case failed.
  const measure::HostArrays& last_results() const { return m_last; }

 private:
  AttentionTask task(const AttentionCase& point) const;
  void measure_case(const AttentionCase& point, AttentionResult& result, const std::function<bool()>& stop);

  const AttentionCompareDeck& m_deck;
  const AttentionTensors* m_tensors;
  ReferenceRuns m_references;
  LimitSamples m_limits;
  measure::HostArrays m_last;
};

/// Pairs of a query and a key it sees, of one head: of the whole batch. Half the square where a causal mask
/// cuts a square, counted pair by pair where it cuts something else or there is a window.
double visible_pairs(const AttentionTask& task);

/// FLOP of one call, by the usual convention: 2·(head_dim + v_head_dim) per visible pair and head;
/// backward 2.5 times that.
double attention_flops(const AttentionTask& task);

/// Bytes that must move at least once per call: forward q, out, lse, and the k and v that a query sees; backward these
/// and the gradients, of all keys.
double attention_bytes(const AttentionTask& task);

}  // namespace kformer::drivers
