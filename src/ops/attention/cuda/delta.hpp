// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/gradients.hpp"

/// \file
/// δ = Σ_d dout · out of every query and head, in float.

namespace kformer::Impl::cuda {

template <Half type>
struct DeltaKernel {
  static constexpr int threads = 128, blocks_per_multiprocessor = 8, shared_bytes = 0;
  /// Eight threads share a row, and read 16 bytes each.
  static constexpr int threads_per_row = 8, rows = threads / threads_per_row;

  GradientArguments g;
  std::int64_t count;  ///< of rows, in the order of memory

  KFORMER_DEVICE void operator()() const {
    const std::int64_t row = static_cast<std::int64_t>(block_index()) * rows + thread_index() / threads_per_row;
    const int head = static_cast<int>(row % g.a.q_heads), query = static_cast<int>(row / g.a.q_heads % g.q_len),
              batch = static_cast<int>(row / g.a.q_heads / g.q_len);
    float sum = 0;
    if (row < count) {
      const std::uint16_t *out = g.a.out.row(batch, query, head), *dout = g.dout.row(batch, query, head);
      for (int d = thread_index() % threads_per_row * 8; d < g.a.v_head_dim; d += threads_per_row * 8)
        sum += chunk_product(out + d, dout + d);
    }
    for (int lanes = threads_per_row / 2; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
    if (row < count && thread_index() % threads_per_row == 0) delta_of(g, batch, head, query) = sum;
  }

 private:
  /// A zero of `out` annihilates: a query that sees nothing has out = 0, whatever dout holds.
  KFORMER_DEVICE static float product(std::uint32_t out, std::uint32_t dout) {
    const float o = unpack<type>(static_cast<std::uint16_t>(out));
    return o == 0 ? 0 : o * unpack<type>(static_cast<std::uint16_t>(dout));
  }
  KFORMER_DEVICE static float chunk_product(const std::uint16_t* out, const std::uint16_t* dout) {
    const Chunk x = load_words<4>(out), y = load_words<4>(dout);
    float sum = 0;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i)
      sum += product(x.word[i], y.word[i]) + product(x.word[i] >> 16, y.word[i] >> 16);
    return sum;
  }
};

}  // namespace kformer::Impl::cuda
