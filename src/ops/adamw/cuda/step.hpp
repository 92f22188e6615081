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

template <class T>
struct AdamWKernel {
  using C = Arithmetic<T>;
  static constexpr int threads = adamw_threads, blocks_per_multiprocessor = 4, shared_bytes = sizeof(C);
  /// Elements of an access: 16 bytes of gradients and states.
  static constexpr int elements = per_chunk<C>;

  AdamWPieces pieces;
  AdamWRule<C> rule;
  AdamWScaling scaling;

  KFORMER_DEVICE void operator()() const {
    if (scaling.norm) {
      const C norm = *static_cast<const C*>(scaling.norm);
      if (!(norm - norm == 0)) return;  // not finite: the whole step is skipped
    }
    if (thread_index() == 0) store_shared(shared_begin(), static_cast<C>(gradient_factor()));
    block_barrier();
    const AdamWPiece piece = piece_of(pieces, block_index());
    const Arrays arrays(pieces.items[piece.item], load_shared<C>(shared_begin()));
    std::int64_t in_chunks = piece.begin;
    if (arrays.is_aligned()) {
      in_chunks += (piece.end - piece.begin) / elements * elements;
      for (std::int64_t i = piece.begin + thread_index() * elements; i < in_chunks; i += threads * elements)
        step<elements>(arrays, i);
    }
    for (std::int64_t i = in_chunks + thread_index(); i < piece.end; i += threads) step<1>(arrays, i);
  }

 private:
  static constexpr bool is_rounded = sizeof(T) == 2;

  struct Arrays {
    const C* gradient;
    C *m, *v;
    C* exact;  // null where a 16-bit weight has no master
    T* weight;
    C decay, factor;

    KFORMER_DEVICE Arrays(const AdamWItem& item, C gradient_factor)
        : gradient(static_cast<const C*>(item.gradient)),
          m(static_cast<C*>(item.m)),
          v(static_cast<C*>(item.v)),
          exact(static_cast<C*>(is_rounded ? item.master : item.weight)),
          weight(static_cast<T*>(item.weight)),
          decay(static_cast<C>(item.weight_decay)),
          factor(gradient_factor) {}
    KFORMER_DEVICE bool is_aligned() const {
      const auto place = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p); };
      return ((place(gradient) | place(m) | place(v) | place(exact)) % 16 |
              place(weight) % (elements * sizeof(T))) == 0;
    }
  };

  KFORMER_DEVICE double gradient_factor() const {
    if (scaling.max_norm == 0) return scaling.scale;
    const double length =
        static_cast<double>(*static_cast<const C*>(scaling.norm)) * scaling.scale + clip_epsilon;
    return length > scaling.max_norm ? scaling.scale * (scaling.max_norm / length) : scaling.scale;
  }

  template <int n>
  KFORMER_DEVICE void step(const Arrays& a, std::int64_t i) const {
    C g[n], m[n], v[n], w[n];
    load_elements(a.gradient, i, g);
    load_elements(a.m, i, m);
    load_elements(a.v, i, v);
    if (a.exact)
      load_elements(a.exact, i, w);
    else
      load_elements(a.weight, i, w);
    KFORMER_DEVICE_UNROLL
    for (int k = 0; k < n; ++k) rule(g[k] * a.factor, a.decay, m[k], v[k], w[k]);
    store_elements(a.m, i, m);
    store_elements(a.v, i, v);
    if (a.exact) store_elements(a.exact, i, w);
    if constexpr (is_rounded) store_elements(a.weight, i, w);
  }
};

}  // namespace kformer::Impl::cuda
