// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/operands.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/attention.hpp"

/// \file
/// Packed tokens as operands.

namespace kformer::Impl {

/// Requires the borders of documents and the positions of `rows` tokens, if `options` say that they are packed.
/// \throws DimensionMismatch naming the function
template <class Space>
void require_packed(const char* function, const LayerOptions& options, std::int64_t rows,
                    const PackedTokens<Space>& packed) {
  if (!options.packed) return;
  Operands(function, {{"starts", tensor_ref(packed.starts)}, {"positions", tensor_ref(packed.positions)}})
      .require_extents(packed.starts.extent(0) > 1 && tensor_ref(packed.positions).has_extents({rows}),
                       "starts of at least one document and the end of the last, and positions of " +
                           std::to_string(rows) + " tokens (batch x seq_len)");
}

/// A vector as the one row of a matrix.
template <class Space>
auto one_row(const StridedVector<Space, const std::int32_t>& v) {
  using Row =
      Kokkos::View<const std::int32_t**, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  return Row(v.data(), Kokkos::LayoutStride(1, v.extent(0) * v.stride(0), v.extent(0), v.stride(0)));
}

/// The borders of packed documents, where there are any.
template <class Exec>
AttentionExtras<Exec> documents(const LayerOptions& options,
                                const PackedTokens<typename Exec::memory_space>& packed) {
  AttentionExtras<Exec> extras;
  if (options.packed) extras.sequences(packed.starts, packed.starts);
  return extras;
}

}  // namespace kformer::Impl
