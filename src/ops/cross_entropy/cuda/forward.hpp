// SPDX-License-Identifier: MIT
#pragma once

#include "ops/cross_entropy/cuda/logits.hpp"

/// \file
/// One block per row, which is read once: every thread keeps the largest of its logits and the sum of
/// exponentials below it, and scales the sum when a larger one comes.

namespace kformer::Impl::cuda {

inline constexpr float lowest_logit = -3.402823466e+38f;

/// `Σ_v e^(z[v] − largest)` and `Σ_v (largest − z[v])` over the logits a thread has seen. The largest is never
/// −∞: impossible tokens alone must not become ∞ − ∞.
template <bool with_below>
class LogitSums {
 public:
  float largest = lowest_logit, sum = 0, below = 0;

  template <int n>
  KFORMER_DEVICE void add(const float (&z)[n]) {
    float highest = largest;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) highest = cuda::largest(highest, z[i]);
    if (highest > largest) shift_to(highest);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      sum += power(z[i] - largest);
      if (with_below) below += largest - z[i];
    }
    m_count += n;
  }

  /// `to` is not below the largest so far.
  KFORMER_DEVICE void shift_to(float to) {
    sum *= power(largest - to);
    if (with_below && m_count > 0) below += static_cast<float>(m_count) * (to - largest);
    largest = to;
  }

 private:
  KFORMER_DEVICE static float power(float x) { return exp2_fast(x * 1.44269504088896341f); }

  int m_count = 0;
};

// Occupancy of CrossEntropyForwardKernel: registers limit it to four blocks: they hold four loads of 16
// bytes per thread, 64 KB of a multiprocessor in flight, and the numbers that come of one. A
// multiprocessor's share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36 KB per microsecond, and a
// latency is shorter.
template <class T, class Logits, bool with_below>
struct CrossEntropyForwardKernel {
  static constexpr int threads = cross_entropy_threads, warps = threads / 32, blocks_per_multiprocessor = 4;
  static constexpr int shared_bytes = 3 * warps * static_cast<int>(sizeof(float));

  CrossEntropyArguments arguments;
  CrossEntropyNumbers options{arguments};

  KFORMER_DEVICE void operator()() const {
    const CrossEntropyArguments& a = arguments;
    const int row = block_index(), thread = thread_index();
    const std::int32_t target = a.targets[row];
    float &loss = static_cast<float*>(a.loss)[row], &lse = static_cast<float*>(a.lse)[row];
    if (target == a.ignore_index) {
      if (thread == 0) loss = lse = 0;
      return;
    }
    const T* x = logits_of_row<T>(a, row);
    const Logits logits(options.softcap);
    LogitSums<with_below> sums = sums_of_thread(x, static_cast<int>(a.vocabulary), logits);

    float largest = largest_of_warp(sums.largest);
    if (thread % 32 == 0) store_shared(place(0, thread / 32), largest);
    block_barrier();
    for (int warp = 0; warp < warps; ++warp)
      largest = cuda::largest(largest, load_shared<float>(place(0, warp)));
    sums.shift_to(largest);
    const float sum = sum_of_warp(sums.sum), below = with_below ? sum_of_warp(sums.below) : 0;
    if (thread % 32 == 0) {
      store_shared(place(1, thread / 32), sum);
      if (with_below) store_shared(place(2, thread / 32), below);
    }
    block_barrier();
    if (thread != 0) return;
    const float log_sum = natural_log(total_of_block(1));
    lse = largest + log_sum;
    if (!is_token(a, target)) {
      loss = not_a_number();
      return;
    }
    // No term is negative: nothing cancels, however large the logits.
    float total = log_sum + (1 - options.smoothing) * (largest - logits(widened(x[target])));
    if (with_below) total += options.smoothing * (total_of_block(2) / static_cast<float>(a.vocabulary));
    if (options.z_loss > 0) total += options.z_loss * lse * lse;
    loss = total;
  }

 private:
  /// What warp `warp` says in round `round`.
  KFORMER_DEVICE static SharedAddress place(int round, int warp) {
    return shared_begin() + static_cast<SharedAddress>((round * warps + warp) * 4);
  }
  KFORMER_DEVICE static float total_of_block(int round) {
    float sum = 0;
    for (int warp = 0; warp < warps; ++warp) sum += load_shared<float>(place(round, warp));
    return sum;
  }
  KFORMER_DEVICE static float largest_of_warp(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x = cuda::largest(x, shuffle_xor(x, lanes));
    return x;
  }
  KFORMER_DEVICE static float sum_of_warp(float x) {
    for (int lanes = 16; lanes > 0; lanes /= 2) x += shuffle_xor(x, lanes);
    return x;
  }

  KFORMER_DEVICE static LogitSums<with_below> sums_of_thread(const T* x, int vocabulary, const Logits& logits) {
    LogitSums<with_below> sums;
    const ChunkedRow<T> row(x, vocabulary);
    const T* chunks = x + row.head;
    int chunk = thread_index();
    for (; chunk + (logit_chunks - 1) * threads < row.chunks; chunk += logit_chunks * threads)
      add_chunks<logit_chunks>(chunks, chunk, logits, sums);
    for (; chunk < row.chunks; chunk += threads) add_chunks<1>(chunks, chunk, logits, sums);
    if (thread_index() < row.head + row.tail) {
      const float z[1] = {logits(widened(x[row.loose(thread_index())]))};
      sums.add(z);
    }
    return sums;
  }
  template <int n>
  KFORMER_DEVICE static void add_chunks(const T* chunks, int chunk, const Logits& logits,
                                        LogitSums<with_below>& sums) {
    Words<4> words[n];
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) words[i] = load_words<4>(chunks + (chunk + i * threads) * per_chunk<T>);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < n; ++i) {
      float z[per_chunk<T>];
      widen<T, per_chunk<T>>(words[i], z);
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < per_chunk<T>; ++j) z[j] = logits(z[j]);
      sums.add(z);
    }
  }
};

}  // namespace kformer::Impl::cuda
