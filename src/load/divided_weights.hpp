// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/model/weight_matrix.hpp"
#include "kformer/parallel/collectives.hpp"

/// \file
/// Weights of which a rank has some rows or columns (`Parameter::slice`), and files that have all of them.

namespace kformer::Impl {

/// The rows or columns of a tensor that a slot takes.
/// \param tensor whole, of the slot's extents
/// \param slot   of a weight that ranks divide
/// \param host   holds columns, which are not adjacent in the file, as long as the result is read
/// \throws NotSupported if the slice begins or ends inside a quantised block
CheckpointTensor part_of_tensor(const CheckpointTensor& tensor, const WeightSlot& slot,
                                std::vector<std::byte>& host);

/// The extents of a published array and of the parts that ranks have of it.
struct DividedArray {
  std::int64_t rows, columns;  ///< of the whole array; a vector is a column
  std::int64_t whole;          ///< what is divided: rows or columns
  bool by_rows;

  explicit DividedArray(const Parameter& p)
      : rows(p.weight.extent[0]),
        columns(p.weight.rank > 1 ? p.weight.extent[1] : 1),
        whole(p.slice.whole),
        by_rows(p.slice.axis == 0) {
    if (p.slice.divides()) (by_rows ? rows : columns) = whole;
  }
  /// Rows or columns of rank r of n.
  std::pair<std::size_t, std::size_t> range(int rank, int ranks) const {
    return {static_cast<std::size_t>(slice_begin(whole, rank, ranks)),
            static_cast<std::size_t>(slice_begin(whole, rank + 1, ranks))};
  }
  std::size_t elements() const { return static_cast<std::size_t>(rows * columns); }
};

/// This rank's part of an array, as a matrix.
template <class T, class Space>
BlockMatrix<Space, T> part_matrix(const Parameter& p) {
  const auto rows = static_cast<std::size_t>(p.weight.extent[0]),
             columns = static_cast<std::size_t>(p.weight.rank > 1 ? p.weight.extent[1] : 1);
  return BlockMatrix<Space, T>(static_cast<T*>(p.weight.data), Kokkos::LayoutStride(rows, columns, columns, 1));
}

/// Sends this rank's part of an array to the first rank, which calls `gather_parts`.
template <class T, class Exec>
void send_part(const Exec& exec, const Parameter& p, Collectives<Exec>& ranks) {
  ranks.send(exec, part_matrix<T, typename Exec::memory_space>(p), 0, "model");
}

/// The whole array, on the first rank.
/// \param staging has room for `gather_bytes`
/// \returns its first element, in `staging`
template <class T, class Exec>
const void* gather_parts(const Exec& exec, const Parameter& p, Collectives<Exec>& ranks,
                         const MemoryBlock<typename Exec::memory_space>& staging) {
  using Space = typename Exec::memory_space;
  const DividedArray array(p);
  const auto whole = matrix_in<T>(staging, 0, array.rows, array.columns);
  const int n = ranks.communicator().size();
  for (int rank = 0; rank < n; ++rank) {
    const auto own = array.range(rank, n);
    const std::pair<std::size_t, std::size_t> rows(0, static_cast<std::size_t>(array.rows)),
        columns(0, static_cast<std::size_t>(array.columns));
    const BlockMatrix<Space, T> place =
        Kokkos::subview(whole, array.by_rows ? own : rows, array.by_rows ? columns : own);
    if (rank == 0) {
      Kokkos::deep_copy(exec, place, part_matrix<T, Space>(p));
    } else if (array.by_rows) {
      ranks.receive(exec, place, rank, "model");
    } else {
      const auto part = matrix_in<T>(staging, array.elements() * sizeof(T), array.rows,
                                     static_cast<std::int64_t>(own.second - own.first));
      ranks.receive(exec, part, rank, "model");
      Kokkos::deep_copy(exec, place, part);
    }
  }
  return whole.data();
}

}  // namespace kformer::Impl
