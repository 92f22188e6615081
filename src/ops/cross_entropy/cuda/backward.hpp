// SPDX-License-Identifier: MIT
#pragma once

#include "ops/cross_entropy/cuda/logits.hpp"

/// \file
/// One block per row, which is read once; the gradient may be written over the logits.

namespace kformer::Impl::cuda {

/// The gradient of logits of one row: `(e^(z − lse)·pull − share)·dz/dx·dloss`.
template <class Logits>
struct LogitGradient {
  Logits logits;
  float lse, pull, dloss, own, other;
  int target;

  KFORMER_DEVICE LogitGradient(const CrossEntropyArguments& a, const CrossEntropyNumbers& n, int row)
      : logits(n.softcap),
        lse(static_cast<const float*>(a.lse)[row]),
        pull(1 + 2 * n.z_loss * lse),
        own(n.own),
        other(n.other),
        target(a.targets[row]) {
    dloss = is_token(a, target) ? static_cast<const float*>(a.dloss)[row] : not_a_number();
  }
  KFORMER_DEVICE float operator()(float x, int token) const {
    const float z = logits(x);
    return (exponential(z - lse) * pull - (token == target ? own : other)) * logits.slope(z) * dloss;
  }
};

// Occupancy of CrossEntropyBackwardKernel: registers limit it to four blocks: they hold four loads of 16
// bytes per thread, 64 KB of a multiprocessor in flight, and the numbers that come of one. A
// multiprocessor's share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per microsecond, and a
// latency is shorter.
template <class T, class Logits>
struct CrossEntropyBackwardKernel {
  static constexpr int threads = cross_entropy_threads, blocks_per_multiprocessor = 4, shared_bytes = 0;

  CrossEntropyArguments arguments;
  CrossEntropyNumbers options{arguments};

  KFORMER_DEVICE void operator()() const {
    const CrossEntropyArguments& a = arguments;
    const int row = block_index();
    const T* x = logits_of_row<T>(a, row);
    T* dx = static_cast<T*>(a.dlogits) + row * a.dlogits_stride;
    const int vocabulary = static_cast<int>(a.vocabulary);
    if (a.targets[row] == a.ignore_index)
      clear(dx, vocabulary);
    else
      differentiate(x, dx, vocabulary, LogitGradient<Logits>(a, options, row));
  }

 private:
  static constexpr int numbers = per_chunk<T>;

  KFORMER_DEVICE static void clear(T* dx, int vocabulary) {
    const ChunkedRow<T> row(dx, vocabulary);
    for (int chunk = thread_index(); chunk < row.chunks; chunk += threads)
      store_words(dx + row.head + chunk * numbers, Words<4>{});
    if (thread_index() < row.head + row.tail) narrow(Arithmetic<T>(0), dx[row.loose(thread_index())]);
  }

  KFORMER_DEVICE static void differentiate(const T* x, T* dx, int vocabulary,
                                           const LogitGradient<Logits>& gradient) {
    const ChunkedRow<T> row(x, vocabulary);
    int chunk = thread_index();
    for (; chunk + (logit_chunks - 1) * threads < row.chunks; chunk += logit_chunks * threads)
      differentiate_chunks<logit_chunks>(x, dx, row.head, chunk, gradient);
    for (; chunk < row.chunks; chunk += threads) differentiate_chunks<1>(x, dx, row.head, chunk, gradient);
    if (thread_index() < row.head + row.tail) {
      const int token = row.loose(thread_index());
      narrow(gradient(widened(x[token]), token), dx[token]);
    }
  }
  template <int n>
  KFORMER_DEVICE static void differentiate_chunks(const T* x, T* dx, int head, int chunk,
                                                  const LogitGradient<Logits>& gradient) {
    Words<4> words[n];
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) words[i] = load_words<4>(x + head + (chunk + i * threads) * numbers);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      // The place of each chunk is computed separately: the places of all would not leave registers for its
      // numbers.
      const int first = opaque(head + (chunk + i * threads) * numbers);
      float z[numbers];
      widen<T, numbers>(words[i], z);
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < numbers; ++j) z[j] = gradient(z[j], first + j);
      store_numbers<T, numbers>(dx + first, z);
    }
  }
};

}  // namespace kformer::Impl::cuda
