// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/cuda/vectors.hpp"
#include "ops/embedding/cuda/arguments.hpp"

/// \file
/// The embedding's gradient. Ids are assigned to classes by their remainder, columns to blocks of threads: no two
/// blocks share an element, each element is summed in the order of the rows, and how many classes and blocks there
/// are cannot be seen in the result.

namespace kformer::Impl::cuda {

/// The sums of a thread's columns for one id. They stay in registers while the id follows itself.
template <class T>
class EmbeddingSums {
 public:
  static constexpr int numbers = per_chunk<T>;

  KFORMER_DEVICE EmbeddingSums(const EmbeddingBackwardArguments& arguments, std::int64_t chunk)
      : m_arguments(arguments), m_chunk(chunk), m_has_columns(chunk * numbers < arguments.hidden) {}

  KFORMER_DEVICE Chunk load(std::int64_t row) const {
    return m_has_columns ? load_row_chunk<T>(m_arguments.dy, row, m_chunk) : Chunk{};
  }
  KFORMER_DEVICE void add(std::int64_t id, const Chunk& dy) {
    if (!m_has_columns) return;
    if (id != m_id) {
      store();
      m_id = id;
      read();
    }
    float value[numbers];
    widen<T>(dy, value);
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < numbers; ++i) m_sum[i] += value[i];
  }
  KFORMER_DEVICE void store() const {
    if (m_id < 0) return;
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < numbers; i += 4)
      store_numbers<float, 4>(place() + i, {m_sum[i], m_sum[i + 1], m_sum[i + 2], m_sum[i + 3]});
  }

 private:
  KFORMER_DEVICE float* place() const {
    return static_cast<float*>(m_arguments.dweight) + m_id * m_arguments.dweight_stride + m_chunk * numbers;
  }
  KFORMER_DEVICE void read() {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < numbers; i += 4) {
      float part[4];
      load_numbers<float, 4>(place() + i, part);
      KFORMER_DEVICE_UNROLL
      for (int j = 0; j < 4; ++j) m_sum[i + j] = part[j];
    }
  }

  const EmbeddingBackwardArguments& m_arguments;
  std::int64_t m_chunk;
  bool m_has_columns;
  std::int64_t m_id = -1;
  float m_sum[numbers] = {};
};

// Occupancy of EmbeddingBackwardKernel: registers limit it: a thread keeps the sums of its columns and has four loads of
// 16 bytes in flight, 1024 threads of a multiprocessor 64 KB. Its share of the memory bandwidth (H200: 4.8 TB/s for
// 132) is 36 KB per microsecond, and a latency is shorter.
template <class T>
struct EmbeddingBackwardKernel {
  static constexpr int threads = embedding_threads, blocks_per_multiprocessor = 8;
  static constexpr int warps = threads / 32, rounds = 4, pass_rows = rounds * threads;
  /// The lanes that found an id of the class, a word per warp and round. Two sets: a warp that reaches the next pass
  /// does not overwrite what others still read.
  static constexpr int set_words = rounds * warps;
  static constexpr int shared_bytes = 4 * (2 * set_words + pass_rows);
  /// Rows whose dy is in flight.
  static constexpr int group = 4;

  EmbeddingBackwardArguments a;

  KFORMER_DEVICE void operator()() const {
    EmbeddingSums<T> sums(a, block_index() / static_cast<int>(a.classes) * threads + thread_index());
    for (std::int64_t first = 0; first < a.rows; first += pass_rows) {
      const int found = find_rows(first);
      for (int begin = 0; begin < found; begin += group) add_rows(first, begin, found, sums);
    }
    sums.store();
  }

 private:
  KFORMER_DEVICE static SharedAddress place_in_list(int i) {
    return shared_begin() + 4 * static_cast<SharedAddress>(2 * set_words + i);
  }

  /// Of ids and blocks the lowest bits are the class, which costs no division.
  KFORMER_DEVICE bool is_mine(std::int64_t row) const {
    if (row >= a.rows) return false;
    const std::int32_t id = a.ids[row];
    return id >= 0 && id < a.vocabulary && ((id ^ block_index()) & (static_cast<int>(a.classes) - 1)) == 0;
  }

  /// Lists the rows of the class in a pass, in order, as distances from `first`. \return how many there are
  KFORMER_DEVICE int find_rows(std::int64_t first) const {
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    const SharedAddress set =
        shared_begin() + static_cast<SharedAddress>(first / pass_rows % 2 * (4 * set_words));
    bool mine[rounds];  // loaded before the first vote
    KFORMER_DEVICE_UNROLL
    for (int round = 0; round < rounds; ++round)
      mine[round] = is_mine(first + round * threads + thread_index());
    KFORMER_DEVICE_UNROLL
    for (int round = 0; round < rounds; ++round) {
      const std::uint32_t lanes = lanes_of_warp(mine[round]);
      if (lane == 0) store_shared(set + 4 * static_cast<SharedAddress>(round * warps + warp), lanes);
    }
    block_barrier();  // behind it nobody reads the list of the pass before
    int count = 0;
    KFORMER_DEVICE_UNROLL
    for (int word = 0; word < set_words; ++word) {
      const auto lanes = load_shared<std::uint32_t>(set + 4 * static_cast<SharedAddress>(word));
      if (word % warps == warp && (lanes >> lane & 1) != 0)
        store_shared(place_in_list(count + bits_set(lanes & ((1u << lane) - 1))),
                     word / warps * threads + thread_index());
      count += bits_set(lanes);
    }
    if (count > 0) block_barrier();
    return count;
  }

  KFORMER_DEVICE void add_rows(std::int64_t first, int begin, int end, EmbeddingSums<T>& sums) const {
    std::int64_t row[group];
    Chunk dy[group];
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < group; ++i) {
      row[i] = first + load_shared<int>(place_in_list(begin + i < end ? begin + i : begin));
      dy[i] = sums.load(row[i]);
    }
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < group; ++i)
      if (begin + i < end) sums.add(a.ids[row[i]], dy[i]);
  }
};

}  // namespace kformer::Impl::cuda
