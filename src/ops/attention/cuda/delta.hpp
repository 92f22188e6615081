// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/gradients.hpp"
#include "ops/common/cuda/numbers.hpp"

/// \file
/// δ = Σ_d dout · out of every query and head, in float.

namespace kformer::Impl::cuda {

template <class T>
struct DeltaKernel {
  static constexpr int threads = 128, blocks_per_multiprocessor = 10, shared_bytes = 0;
  /// Eight threads share a row, and read 16 bytes each.
  static constexpr int threads_per_row = 8, rows = threads / threads_per_row;

  using Stored = std::conditional_t<sizeof(T) == 2, std::uint16_t, T>;
  static constexpr int of_chunk = per_chunk<T>;

  GradientArgumentsOf<Stored> g;
  std::int64_t count;  ///< of rows, in the order of memory

  KFORMER_DEVICE void operator()() const {
    const std::int64_t row = static_cast<std::int64_t>(block_index()) * rows + thread_index() / threads_per_row;
    const int head = static_cast<int>(row % g.a.q_heads), query = static_cast<int>(row / g.a.q_heads % g.q_len),
              batch = static_cast<int>(row / g.a.q_heads / g.q_len);
    float sum = 0;
    if (row < count) {
      const Stored *out = g.a.out.row(batch, query, head), *dout = g.dout.row(batch, query, head);
      for (int d = thread_index() % threads_per_row * of_chunk; d < g.a.v_head_dim;
           d += threads_per_row * of_chunk)
        sum += chunk_product(out + d, dout + d);
    }
    for (int lanes = threads_per_row / 2; lanes > 0; lanes /= 2) sum += shuffle_xor(sum, lanes);
    if (row < count && thread_index() % threads_per_row == 0) delta_of(g, batch, head, query) = sum;
  }

 private:
  /// A zero of `out` annihilates: a query that sees nothing has out = 0, whatever dout holds.
  KFORMER_DEVICE static float product(float out, float dout) { return out == 0 ? 0 : out * dout; }
  KFORMER_DEVICE static float chunk_product(const Stored* out, const Stored* dout) {
    float x[of_chunk], y[of_chunk];
    widen<T, of_chunk>(load_words<4>(out), x);
    widen<T, of_chunk>(load_words<4>(dout), y);
    float sum = 0;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < of_chunk; i += 2) sum += product(x[i], y[i]) + product(x[i + 1], y[i + 1]);
    return sum;
  }
};

template <class T, class Stored>
void launch_delta(Stream stream, const GradientArgumentsOf<Stored>& g, const Sequences& sequences) {
  using Delta = DeltaKernel<T>;
  const std::int64_t batches = sequences.q_starts ? 1 : sequences.count, rows = batches * g.q_len * g.a.q_heads;
  launch("kformer::attention_backward_delta", stream, (rows + Delta::rows - 1) / Delta::rows, Delta{g, rows});
}

}  // namespace kformer::Impl::cuda
