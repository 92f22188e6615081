// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/operands.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/attention.hpp"

/// \file
/// Packed tokens as operands.

namespace kformer::Impl {

/// Requires the borders of documents and the positions of `rows` tokens, if `options` say that they are packed. On hosts it
/// reads the borders, before anything runs: attention would find out in the middle of a layer.
/// \throws DimensionMismatch naming the function
template <class Exec>
void require_packed(const char* function, const LayerOptions& options, std::int64_t rows,
                    const PackedTokens<typename Exec::memory_space>& packed) {
  if (!options.packed) return;
  const TensorRef starts = tensor_ref(packed.starts);
  const Operands all(function, {{"starts", starts}, {"positions", tensor_ref(packed.positions)}});
  all.require_extents(packed.starts.extent(0) > 1 && tensor_ref(packed.positions).has_extents({rows}),
                      "starts of at least one document and the end of the last, and positions of " +
                          std::to_string(rows) + " tokens (batch x seq_len)")
      .require_addresses();
  if constexpr (is_host_space<Exec>)
    check_sequence_starts(all, "starts", starts, rows * (options.context ? options.context->size() : 1));
}

/// A vector as the rows of a matrix, of equal length.
template <class Space>
auto rows_of(const StridedVector<Space, const std::int32_t>& v, std::int64_t count) {
  using Rows =
      Kokkos::View<const std::int32_t**, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const auto rows = static_cast<std::size_t>(count), length = rows == 0 ? 0 : v.extent(0) / rows;
  return Rows(v.data(), Kokkos::LayoutStride(rows, length * v.stride(0), length, v.stride(0)));
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
