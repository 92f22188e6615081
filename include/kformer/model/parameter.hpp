// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

#include "kformer/core/array_slice.hpp"
#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// A weight of a model and its gradient, by the name it has in published checkpoints.
struct Parameter {
  std::string name;  ///< such as "self_attn.q_proj.weight"
  TensorRef weight;  ///< (out, in) or (size), T, contiguous
  TensorRef
      gradient;  ///< the same extents, compute_t<T>; absent in inference, and where adapters learn in its place
  double learning_rate_factor = 1;  ///< of its learning rate over that of the step
  bool vector_decays = false;       ///< whether weight decay also applies to a vector
  ArraySlice slice{};               ///< of the published array, where ranks divide it (`LayerOptions::tensor`)
  bool tied =
      false;  ///< whether the first and the last stage of a pipeline have this weight, and each a part of the
              ///< gradient's sum: a tied embedding
  bool copy = false;  ///< of a tied one, whether it is that of the last stage, which counts in no sum
  bool partial_gradient =
      false;  ///< whether these ranks have the same weight, and each a part of the gradient's sum
};

/// Parameters [begin, end) of a list.
struct ParameterGroup {
  std::size_t begin = 0;  ///< the first
  std::size_t end = 0;    ///< behind the last
  /// Whether both are the same.
  bool operator==(const ParameterGroup&) const = default;
};

}  // namespace kformer
