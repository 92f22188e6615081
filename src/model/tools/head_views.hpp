// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/layer_weights.hpp"

/// \file
/// Columns of a (rows, columns) array seen as heads.

namespace kformer::Impl {

/// A View of memory that is held elsewhere.
template <class Data, class Space>
using HeadView = Kokkos::View<Data, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Head `first` and those behind it, as (rows, count, head_dim).
template <class Space, class U>
HeadView<U***, Space> heads_of_rows(const BlockMatrix<Space, U>& from, std::int64_t first, std::int64_t count,
                                    std::int64_t head_dim) {
  const auto dim = static_cast<std::size_t>(head_dim);
  return HeadView<U***, Space>(
      from.data() + first * head_dim,
      Kokkos::LayoutStride(from.extent(0), from.stride(0), static_cast<std::size_t>(count), dim, dim, 1));
}

/// Head `first` and those behind it, as (batch, rows / batch, count, head_dim).
template <class Space, class U>
HeadView<U****, Space> heads_of_sequences(const BlockMatrix<Space, U>& from, std::int64_t batch,
                                          std::int64_t first, std::int64_t count, std::int64_t head_dim) {
  const auto sequences = static_cast<std::size_t>(batch), dim = static_cast<std::size_t>(head_dim);
  const std::size_t seq_len = sequences == 0 ? 0 : from.extent(0) / sequences, width = from.stride(0);
  return HeadView<U****, Space>(from.data() + first * head_dim,
                                Kokkos::LayoutStride(sequences, seq_len * width, seq_len, width,
                                                     static_cast<std::size_t>(count), dim, dim, 1));
}

}  // namespace kformer::Impl
