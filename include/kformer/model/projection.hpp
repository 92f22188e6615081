// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kformer/core/enum_names.hpp"
#include "kformer/core/types/projection.hpp"
#include "kformer/model/llama_config.hpp"

/// \file
/// Extents and names of the linear maps of a decoder layer. Free of Kokkos.

namespace kformer {

/// The extents (out, in) of a projection's matrix.
inline std::array<std::int64_t, 2> projection_extents(const LlamaConfig& model, Projection p) {
  const std::int64_t q = model.attention_size(), kv = model.num_key_value_heads * model.head_dim,
                     hidden = model.hidden_size, inner = model.intermediate_size;
  const std::array<std::array<std::int64_t, 2>, names_of<Projection>.size()> extents{{{q, hidden},
                                                                                      {kv, hidden},
                                                                                      {kv, hidden},
                                                                                      {hidden, q},
                                                                                      {inner, hidden},
                                                                                      {inner, hidden},
                                                                                      {hidden, inner}}};
  return extents[static_cast<std::size_t>(p)];
}

namespace Impl {
/// The name of a linear map in its layer, such as "self_attn.q_proj".
inline std::string module_of(Projection p) {
  return (p < Projection::gate ? "self_attn." : "mlp.") + std::string(name_of(p));
}
}  // namespace Impl

/// The name of a projection's matrix in its layer, such as "self_attn.q_proj.weight".
inline std::string projection_weight_name(Projection p) { return Impl::module_of(p) + ".weight"; }

}  // namespace kformer
