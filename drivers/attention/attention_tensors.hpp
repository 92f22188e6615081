// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/ops/attention.hpp"
#include "measure/host_array.hpp"

namespace kformer::drivers {

/// The contents of `[tensors] input`: the inputs of one attention.
struct AttentionTensors {
  measure::HostArrays
      arrays;  ///< q, k, v, and those of grad_out, bias, sinks, alibi_slopes, cu_seqlens_* that are there
  AttentionShape shape;  ///< extents of q, k, v and the storage type of q

  /// Whether the gradients can be computed.
  bool has_gradient() const { return arrays.contains("grad_out"); }
};

/// Reads the file and checks every tensor against q, k and v.
/// \throws FileError listing every tensor that is missing, unknown or invalid
AttentionTensors read_attention_tensors(const std::filesystem::path& file);

}  // namespace kformer::drivers
