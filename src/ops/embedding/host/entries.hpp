// SPDX-License-Identifier: MIT
#pragma once

#include <bit>

#include "kformer/ops/embedding.hpp"
#include "ops/common/host_rows.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/embedding/host/arguments.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels.

namespace kformer::Impl::host {

template <class Exec, Isa isa>
struct EmbeddingForwardEntry {
  using P = EmbeddingForward;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject_processor<isa, P>, no_workspace<P>, run};
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const bool streams = exceeds_caches(2 * bytes_of(p.y));
    const std::int64_t rows = p.y.extent[0], hidden = p.y.extent[1];
    const EmbeddingForwardArguments a{static_cast<const std::int32_t*>(p.ids.data),
                                      input_rows(p.weight),
                                      output_rows(p.y, streams, {}),
                                      rows,
                                      p.weight.extent[0],
                                      hidden};
    for_each_piece("kformer::embedding_forward[simd]", exec, rows, piece_of_rows(hidden),
                   [=, run = embedding_kernels<built<isa>>(p.weight.dtype).forward](
                       std::int64_t first_row, std::int64_t end) { run(a, first_row, end); });
  }
};

template <class Exec, Isa isa>
struct EmbeddingBackwardEntry {
  using P = EmbeddingBackward;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject_processor<isa, P>, no_workspace<P>, run};
  }

  /// Ids are assigned to classes, columns to blocks. Each class walks all ids, so there are no more of them
  /// than keep the threads busy.
  static void run(const Exec& exec, const P& p, const Workspace&) {
    constexpr std::int64_t columns = 1024;
    const std::int64_t hidden = p.dweight.extent[1];
    const auto threads = static_cast<std::uint64_t>(exec.concurrency());
    const EmbeddingBackwardArguments a{static_cast<const std::int32_t*>(p.ids.data),
                                       input_rows(p.dy),
                                       p.dweight.data,
                                       p.dweight.stride[0],
                                       p.ids.extent[0],
                                       p.dweight.extent[0],
                                       hidden,
                                       static_cast<std::int64_t>(2 * std::bit_ceil(threads))};
    for_each_tile("kformer::embedding_backward[simd]", exec, a.classes * ceil_div(hidden, columns), 0,
                  [=, run = embedding_kernels<built<isa>>(p.dy.dtype).backward](std::int64_t tile, void*) {
                    const std::int64_t first = tile / a.classes * columns;
                    run(a, {tile % a.classes, first, std::min(columns, a.hidden - first)});
                  });
  }
};

}  // namespace kformer::Impl::host
