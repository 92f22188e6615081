// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/cuda/arguments.hpp"

/// \file
/// The step of AdamW in one pass over memory, a block per piece.

namespace kformer::Impl::cuda {

/// The step of one element; see ops/adamw/kokkos.hpp. Numbers are rounded on the host.
template <class C>
struct AdamWRule {
  C rate, first, second, first_correction, second_correction, eps;

  explicit AdamWRule(const AdamWNumbers& n)
      : rate(static_cast<C>(n.learning_rate)),
        first(static_cast<C>(n.first)),
        second(static_cast<C>(n.second)),
        first_correction(static_cast<C>(n.first_correction)),
        second_correction(static_cast<C>(n.second_correction)),
        eps(static_cast<C>(n.eps)) {}

  KFORMER_DEVICE void operator()(C g, C decay, C& m, C& v, C& w) const {
    m += first * (g - m);
    v += second * (g * g - v);
    w -= rate * (m * first_correction / (square_root(v) * second_correction + eps) + decay * w);
  }
};

/// n numbers from element `i` on: one access, or the only number.
template <int n, class T>
KFORMER_DEVICE void load_elements(const T* from, std::int64_t i, Arithmetic<T> (&x)[n]) {
  if constexpr (n == 1)
    x[0] = widened(from[i]);
  else
    load_numbers(from + i, x);
}
template <int n, class T>
KFORMER_DEVICE void store_elements(T* to, std::int64_t i, const Arithmetic<T> (&x)[n]) {
  if constexpr (n == 1)
    narrow(x[0], to[i]);
  else
    store_numbers(to + i, x);
}

/// What a step reads and writes besides states, of one parameter.
template <class T>
struct AdamWWeights {
  using C = Arithmetic<T>;
  static constexpr bool is_rounded = sizeof(T) == 2;
  /// Elements of an access: 16 bytes of gradients.
  static constexpr int elements = per_chunk<C>;

  const C* gradient;
  C* exact;  // null where a 16-bit weight has no master
  T* weight;
  C decay, factor;

  KFORMER_DEVICE AdamWWeights(const AdamWItem& item, C gradient_factor)
      : gradient(static_cast<const C*>(item.gradient)),
        exact(static_cast<C*>(is_rounded ? item.master : item.weight)),
        weight(static_cast<T*>(item.weight)),
        decay(static_cast<C>(item.weight_decay)),
        factor(gradient_factor) {}
  KFORMER_DEVICE bool is_aligned() const {
    return ((address(gradient) | address(exact)) % 16 | address(weight) % (elements * sizeof(T))) == 0;
  }
  template <int n>
  KFORMER_DEVICE void load(std::int64_t i, C (&w)[n]) const {
    if (exact)
      load_elements(exact, i, w);
    else
      load_elements(weight, i, w);
  }
  template <int n>
  KFORMER_DEVICE void store(std::int64_t i, const C (&w)[n]) const {
    if (exact) store_elements(exact, i, w);
    if constexpr (is_rounded) store_elements(weight, i, w);
  }

 protected:
  KFORMER_DEVICE static std::uintptr_t address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
};

// Occupancy of AdamWKernel: registers limit it to four blocks. A thread has a gradient, two states and a
// weight in flight, 56 or 64 bytes, all threads of a multiprocessor 56 KB and more. A multiprocessor's
// share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per microsecond, and a latency is
// shorter.
template <class T>
struct AdamWKernel {
  using C = Arithmetic<T>;
  static constexpr int threads = adamw_threads, blocks_per_multiprocessor = 4, shared_bytes = sizeof(C);

  AdamWPieces pieces;
  AdamWRule<C> rule;
  AdamWScaling scaling;

  KFORMER_DEVICE void operator()() const {
    if (scaling.skips<C>()) return;
    if (thread_index() == 0) store_shared(shared_begin(), static_cast<C>(scaling.factor<C>()));
    block_barrier();
    const AdamWPiece piece = piece_of(pieces, block_index());
    const Arrays arrays(pieces.items[piece.item], load_shared<C>(shared_begin()));
    constexpr int elements = Arrays::elements;
    std::int64_t in_chunks = piece.begin;
    if (arrays.is_aligned()) {
      in_chunks += (piece.end - piece.begin) / elements * elements;
      for (std::int64_t i = piece.begin + thread_index() * elements; i < in_chunks; i += threads * elements)
        step<elements>(arrays, i);
    }
    for (std::int64_t i = in_chunks + thread_index(); i < piece.end; i += threads) step<1>(arrays, i);
  }

 private:
  struct Arrays : AdamWWeights<T> {
    C *m, *v;

    KFORMER_DEVICE Arrays(const AdamWItem& item, C gradient_factor)
        : AdamWWeights<T>(item, gradient_factor), m(static_cast<C*>(item.m)), v(static_cast<C*>(item.v)) {}
    KFORMER_DEVICE bool is_aligned() const {
      return AdamWWeights<T>::is_aligned() && (this->address(m) | this->address(v)) % 16 == 0;
    }
  };

  template <int n>
  KFORMER_DEVICE void step(const Arrays& a, std::int64_t i) const {
    C g[n], m[n], v[n], w[n];
    load_elements(a.gradient, i, g);
    load_elements(a.m, i, m);
    load_elements(a.v, i, v);
    a.load(i, w);
    KFORMER_DEVICE_UNROLL
    for (int k = 0; k < n; ++k) rule(g[k] * a.factor, a.decay, m[k], v[k], w[k]);
    store_elements(a.m, i, m);
    store_elements(a.v, i, v);
    a.store(i, w);
  }
};

}  // namespace kformer::Impl::cuda
