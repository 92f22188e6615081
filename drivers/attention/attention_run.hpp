// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "decks/attention_deck.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/ops/attention.hpp"
#include "sweep/run.hpp"

/// \file
/// One attention with its inputs. Its results are `out`, for flash `lse`, and with gradients `grad.q`,
/// `grad.k`, `grad.v`, and `grad.bias`, `grad.sinks` if there are such inputs.

namespace kformer::drivers {

/// Random relative changes, as rounding makes them but larger. All 0: none.
struct Perturbation {
  double operands = 0;  ///< of k, v, and the log-sum-exp that backward reads; more of q and grad_out, for sums
  double out = 0;       ///< of the output that backward reads
  std::uint64_t number = 0;  ///< tells changes of the same size apart
};

/// The description of an attention run.
struct AttentionTask {
  AttentionShape shape;                                 ///< storage type and extents
  AttentionOptions options;                             ///< scale, causal, window, softcap
  AttentionAlgorithm impl = AttentionAlgorithm::flash;  ///< implementation of attention
  bool backward = false;                                ///< whether there is a backward pass
  std::uint64_t seed = 1;                               ///< of random inputs
  Perturbation perturbation = {};                       ///< of a run that shows what rounding does
  const measure::HostArrays* tensors = nullptr;  ///< inputs from a file, by their names there; null: random

  /// The input of that name from a file, or null.
  const measure::HostArray* tensor(const std::string& name) const {
    if (tensors == nullptr) return nullptr;
    const auto found = tensors->find(name);
    return found == tensors->end() ? nullptr : &found->second;
  }

  /// Whether there are gradients that all kernels but the reference leave to the same functions.
  bool has_shared_gradients() const { return backward && (tensor("bias") || tensor("sinks")); }
};

/// The reason why standard attention cannot run the task, one sentence; empty if it can.
std::string standard_refusal(const AttentionTask& task);

/// A run on the space of that name; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
/// \throws NotSupported if no kernel supports the request
std::unique_ptr<Run> make_attention_run(const std::string& space, const AttentionTask& task,
                                        const std::shared_ptr<Ledger>& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<Run> make_attention_run_on(const AttentionTask& task, Ledger& ledger);

}  // namespace kformer::drivers
