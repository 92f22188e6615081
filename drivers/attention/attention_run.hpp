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
/// `grad.k`, `grad.v`, and `grad.bias`, `grad.sinks` where there are such inputs.

namespace kformer::drivers {

/// Everything that says which attention to run.
struct AttentionTask {
  AttentionShape shape;                                 ///< storage type and extents
  AttentionOptions options;                             ///< scale, causal, window, softcap
  AttentionAlgorithm impl = AttentionAlgorithm::flash;  ///< implementation of attention
  bool backward = false;                                ///< whether there is a backward pass
  std::uint64_t seed = 1;                               ///< of random inputs
  const HostArrays* tensors = nullptr;  ///< inputs from elsewhere, by their names in the file; null: random

  /// The input of that name from elsewhere, or null.
  const HostArray* tensor(const std::string& name) const {
    if (tensors == nullptr) return nullptr;
    const auto found = tensors->find(name);
    return found == tensors->end() ? nullptr : &found->second;
  }
};

/// Why standard attention cannot do what the task asks for, one sentence; empty if it can.
std::string standard_refusal(const AttentionTask& task);

/// A run on the space of that name; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
/// \throws NotSupported if no kernel does what is asked for
std::unique_ptr<Run> make_attention_run(const std::string& space, const AttentionTask& task,
                                        const std::shared_ptr<Ledger>& ledger);

/// The same on one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<Run> make_attention_run_on(const AttentionTask& task, Ledger& ledger);

}  // namespace kformer::drivers
