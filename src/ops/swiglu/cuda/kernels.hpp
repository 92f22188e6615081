// SPDX-License-Identifier: MIT
#pragma once

#include "ops/swiglu/cuda/arguments.hpp"

/// \file
/// SwiGLU, forward and backward: a thread has one chunk of 16 bytes of each array.

namespace kformer::Impl::cuda {

/// silu(g) = g · σ(g) and its derivative, with σ(g) and σ(−g) both from e^(−|g|), so that nothing overflows or
/// cancels. No infinity meets a zero: at ±∞ the limits come out. Rounding to 16 bits hides what the fast
/// instructions lose.
template <class T>
struct Silu {
  float value, slope;

  KFORMER_DEVICE explicit Silu(float g) {
    const float e = decay(largest(g, -g)), near = inverse(1 + e);
    const bool negative = g < 0;
    const float sigmoid = (negative ? e : 1) * near, complement = (negative ? 1 : e) * near;
    const float not_below = g < -most ? -most : g, finite = not_below > most ? most : not_below;
    value = not_below * sigmoid;
    slope = sigmoid + finite * (sigmoid * complement);
  }

 private:
  static constexpr float most = 0x1.fffffep127f, log2_e = 1.44269504088896341f;
  static constexpr bool is_rounded = per_chunk<T> == 8;

  KFORMER_DEVICE static float decay(float x) {
    if constexpr (is_rounded)
      return exp2_fast(-log2_e * x);
    else
      return exponential(-x);
  }
  KFORMER_DEVICE static float inverse(float x) {
    if constexpr (is_rounded)
      return reciprocal_fast(x);
    else
      return 1 / x;
  }
};

/// What both kernels are: a thread has one chunk. All chunks of a row come before those of the next.
template <class Arguments>
struct SwigluKernel {
  static constexpr int threads = 256, blocks_per_multiprocessor = 4, shared_bytes = 0;

  Arguments a;
  std::uint32_t count, per_row;

  /// Calls `work(row, chunk)` if this thread has a chunk.
  template <class Work>
  KFORMER_DEVICE void with_chunk(Work work) const {
    const std::uint32_t i =
        static_cast<std::uint32_t>(block_index()) * threads + static_cast<std::uint32_t>(thread_index());
    if (i < count) work(i / per_row, i % per_row);
  }
};

template <class T>
struct SwigluForwardKernel : SwigluKernel<SwigluForwardArguments> {
  KFORMER_DEVICE void operator()() const {
    with_chunk([this](std::uint32_t row, std::uint32_t chunk) {
      constexpr int n = per_chunk<T>;
      float gate[n], up[n];
      const Chunk gates = load_row_chunk<T>(a.gate, row, chunk), ups = load_row_chunk<T>(a.up, row, chunk);
      widen<T>(gates, gate), widen<T>(ups, up);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < n; ++k) up[k] = Silu<T>(gate[k]).value * up[k];
      store_row_chunk<T>(a.y, row, chunk, narrowed<T>(up));
    });
  }
};

template <class T>
struct SwigluBackwardKernel : SwigluKernel<SwigluBackwardArguments> {
  KFORMER_DEVICE void operator()() const {
    with_chunk([this](std::uint32_t row, std::uint32_t chunk) {
      constexpr int n = per_chunk<T>;
      // All is read before anything is written, because outputs may be inputs.
      const Chunk gates = load_row_chunk<T>(a.gate, row, chunk), ups = load_row_chunk<T>(a.up, row, chunk),
                  dys = load_row_chunk<T>(a.dy, row, chunk);
      float gate[n], up[n], dy[n];
      widen<T>(gates, gate), widen<T>(ups, up), widen<T>(dys, dy);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < n; ++k) {
        const Silu<T> silu(gate[k]);
        gate[k] = dy[k] * up[k] * silu.slope;
        up[k] = dy[k] * silu.value;
      }
      store_row_chunk<T>(a.dgate, row, chunk, narrowed<T>(gate));
      store_row_chunk<T>(a.dup, row, chunk, narrowed<T>(up));
    });
  }
};

}  // namespace kformer::Impl::cuda
