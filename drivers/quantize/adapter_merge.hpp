// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "merge/logit_difference.hpp"

/// \file
/// Adapters that become part of the weights which are quantised, and what that changes.

namespace kformer::drivers {

/// What becomes of an adapter in a model that computes.
enum class AdapterForm {
  none,   ///< there is none
  live,   ///< it stays beside the weights
  merged  ///< it is added to them, which are expanded
};

/// Whether an adapter changes a tensor.
bool is_adapted(const AdapterCheckpoint& adapter, const std::string& name);

/// A tensor with its adapter, on the host.
struct MergedTensor {
  DType type = DType::f32;         ///< of its numbers
  std::vector<std::byte> bytes{};  ///< of them, row by row
};

/// Merges an adapter into the tensors of a checkpoint, and computes with both.
class AdapterMerge {
 public:
  virtual ~AdapterMerge() = default;

  /// The tensor with its adapter added: in double if it is stored so, otherwise in float.
  virtual MergedTensor merged(const std::string& name, const CheckpointTensor& tensor) = 0;
  /// Tokens of the model with its adapter, drawn from its distribution (temperature 1, seed 1) after `first`, which they
  /// begin with.
  virtual std::vector<std::int32_t> tokens(std::int32_t first, std::int64_t count) = 0;
  /// The logits of a model behind each of some tokens, computed in float.
  /// \param checkpoint the source, or the packed one
  /// \param use        of the adapter
  /// \param tokens     one sequence
  virtual Logits logits(const Checkpoint& checkpoint, AdapterForm use,
                        const std::vector<std::int32_t>& tokens) = 0;
};

/// On the space of that name. Kokkos is initialised.
std::unique_ptr<AdapterMerge> make_adapter_merge(const std::string& space, const Checkpoint& source,
                                                 const AdapterCheckpoint& adapter);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<AdapterMerge> make_adapter_merge_on(const Checkpoint& source, const AdapterCheckpoint& adapter);

}  // namespace kformer::drivers
