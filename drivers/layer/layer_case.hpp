// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <set>
#include <string>

#include "decks/layer_deck.hpp"
#include "layer/layer_run.hpp"
#include "layer/layer_tensors.hpp"
#include "sweep/limit_samples.hpp"
#include "sweep/measurement.hpp"
#include "sweep/reference_runs.hpp"

/// \file
/// One case of a layer sweep, from its point in the sweep to its results.

namespace kformer::drivers {

/// The results of one case.
struct CaseResult : Measurement {
  LayerCase point;  ///< with batch and seq_len filled in
};

/// Runs the cases of one deck.
class LayerSweep {
 public:
  /// `tensors` must outlive the sweep; null means random inputs.
  LayerSweep(const LayerSweepDeck& deck, const LlamaConfig& config, const LayerTensors* tensors);

  /// Runs one case. `stop` is called between samples. Never throws for faults of the case: these are its
  /// status.
  /// \throws OutOfMemory if the deck says on_oom = "abort"
  CaseResult run(const LayerCase& point, const std::function<bool()>& stop);

  /// What the last case computed, if the deck asks for an output file; empty if that case failed.
  const measure::HostArrays& last_results() const { return m_last; }

 private:
  LayerTask task(const LayerCase& point) const;
  void measure_case(const LayerCase& point, CaseResult& result, const std::function<bool()>& stop);
  void check(const LayerCase& point, const measure::HostArrays& results, CaseResult& result,
             const std::function<bool()>& stop);
  void check_steps(const LayerCase& point, CaseResult& result) const;
  bool has_finite_gradients(const CaseResult& result) const;
  LayerTask reference_task(const LayerCase& point, const std::string& ran) const;
  LayerTask naive_task(const LayerCase& point, const std::string& ran) const;

  const LayerSweepDeck& m_deck;
  LlamaConfig m_config;
  const LayerTensors* m_tensors;
  ReferenceRuns m_references;
  std::set<std::string> m_without_blas;  // spaces
  LimitSamples m_limits;
  measure::HostArrays m_last;
};

/// Bytes that an optimizer's step must move: gradients set to zero, read for their norm and read again;
/// weights, master weights and states read and written.
double step_bytes(const LayerTask& task, DType dtype);

/// Bytes that must move at least once per call: weights, inputs and outputs; backward also what forward saved
/// (flash), and parameter gradients read and written.
double layer_bytes(const LlamaConfig& config, LayerShape shape, DType dtype, bool backward);

}  // namespace kformer::drivers
