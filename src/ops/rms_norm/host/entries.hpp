// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/host_rows.hpp"
#include "ops/common/simd_entries.hpp"
#include "ops/rms_norm/host/arguments.hpp"
#include "ops/rms_norm/kokkos.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels.

namespace kformer::Impl::host {

/// Elements from one head of a token to the next.
inline std::int64_t head_stride(const TensorRef& x) { return x.rank == 3 ? x.stride[1] : 0; }

/// Of the arrays that forward passes over.
inline std::int64_t bytes_of(const RmsNormForward& p) {
  return bytes_of(p.x) + bytes_of(p.residual) + bytes_of(p.sum) + bytes_of(p.y);
}

inline RmsNormForwardArguments forward_arguments(const RmsNormForward& p, bool streams) {
  const auto [rows, hidden, heads] = NormRows(p.x);
  return {input_rows(p.x),
          input_rows(p.residual),
          p.weight.data,
          output_rows(p.sum, streams, {p.x, p.residual}),
          output_rows(p.y, streams, {p.x}),
          p.rstd.data,
          hidden,
          p.eps,
          {.heads = heads, .x = head_stride(p.x), .y = head_stride(p.y)}};
}

template <class Exec, Isa isa>
struct RmsNormForwardEntry {
  using P = RmsNormForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.x.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const RmsNormForwardArguments a = forward_arguments(p, exceeds_caches(bytes_of(p)));
    for_each_piece("kformer::rms_norm_forward[simd]", exec, NormRows(p.x).count, piece_of_rows(a.hidden),
                   [=, run = rms_norm_kernels<built<isa>>(p.x.dtype).forward](
                       std::int64_t first_row, std::int64_t end) { run(a, first_row, end); });
  }
};

/// The rows of q come before those of k.
template <class Exec, Isa isa>
struct QkNormForwardEntry {
  using P = QkNormForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.q.x.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    const bool streams = exceeds_caches(bytes_of(p.q) + bytes_of(p.k));
    const RmsNormForwardArguments q = forward_arguments(p.q, streams), k = forward_arguments(p.k, streams);
    const std::int64_t q_rows = NormRows(p.q.x).count, k_rows = NormRows(p.k.x).count;
    for_each_piece(
        "kformer::qk_norm_forward[simd]", exec, q_rows + k_rows, piece_of_rows(q.hidden),
        [=, run = rms_norm_kernels<built<isa>>(p.q.x.dtype).forward](std::int64_t first_row, std::int64_t end) {
          if (first_row < q_rows) run(q, first_row, std::min(end, q_rows));
          if (end > q_rows) run(k, std::max(first_row, q_rows) - q_rows, end - q_rows);
        });
  }
};

template <class Exec, Isa isa>
struct RmsNormBackwardEntry {
  using P = RmsNormBackward;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject, rms_norm_backward_workspace, run};
  }

  static std::string reject(const P& p) { return refusal<isa>(p.x.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    constexpr std::int64_t columns = 512;  // of one piece of the weight gradient
    const bool streams = exceeds_caches(bytes_of(p.x) + bytes_of(p.dy) + bytes_of(p.dsum) + bytes_of(p.dx));
    const auto [rows, hidden, heads] = NormRows(p.x);
    const std::int64_t blocks = rms_norm_row_blocks(rows);
    const RmsNormBackwardArguments a{
        input_rows(p.x),
        p.weight.data,
        p.rstd.data,
        input_rows(p.dy),
        input_rows(p.dsum),
        output_rows(p.dx, streams, {p.x, p.dy, p.dsum}),
        workspace.data,
        p.dweight.data,
        rows,
        hidden,
        rms_norm_rows_per_block(rows),
        blocks,
        {.heads = heads, .x = head_stride(p.x), .dy = head_stride(p.dy), .dx = head_stride(p.dx)}};
    const RmsNormKernels& kernels = rms_norm_kernels<built<isa>>(p.x.dtype);
    for_each_piece("kformer::rms_norm_backward[simd]", exec, blocks, 1,
                   [=, run = kernels.backward](std::int64_t block, std::int64_t) { run(a, block); });
    for_each_piece("kformer::rms_norm_backward_weight[simd]", exec, p.dweight.size(), columns,
                   [=, run = kernels.backward_weight](std::int64_t first_column, std::int64_t end) {
                     run(a, first_column, end);
                   });
  }
};

}  // namespace kformer::Impl::host
