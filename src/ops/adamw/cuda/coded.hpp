// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/cuda/step.hpp"
#include "ops/adamw/dynamic_map.hpp"

/// \file
/// The step with states of 8 bits in one pass over memory: a warp per block of 256 elements, which share a
/// scale.

namespace kformer::Impl::cuda {

inline constexpr int coded_block = 256;

/// Both maps as kernels need them. Borders are search trees: node 1 is the middle one, and nodes 2i and 2i + 1
/// halve what is below and above node i. The nodes of a level are neighbours, so that most threads of a warp
/// find theirs in different banks of shared memory.
struct alignas(16) CodedTables {
  float m_value[256], v_value[256], m_borders[256], v_borders[256];
};

template <MapSign sign>
constexpr void fill_tables(float (&value)[256], float (&borders)[256]) {
  for (int code = 0; code < 256; ++code) value[code] = dynamic_value<sign>(code);
  borders[0] = 0;  // no node
  for (int level = 0; level < 8; ++level)
    for (int i = 0; i < 1 << level; ++i)
      borders[(1 << level) + i] = dynamic_border<sign>(((2 * i + 1) << (7 - level)) - 1);
}
constexpr CodedTables coded_tables() {
  CodedTables all{};
  fill_tables<MapSign::with>(all.m_value, all.m_borders);
  fill_tables<MapSign::without>(all.v_value, all.v_borders);
  return all;
}
KFORMER_DEVICE_CONSTANT CodedTables tables = coded_tables();

/// A map in shared memory.
struct SharedMap {
  SharedAddress value, borders;

  KFORMER_DEVICE float decoded(std::uint32_t code) const { return load_shared<float>(value + 4 * code); }
  /// Of a quotient in [-1, 1], see `dynamic_code`.
  KFORMER_DEVICE std::uint32_t code_of(float x) const {
    std::uint32_t node = 1;
    KFORMER_DEVICE_UNROLL
    for (int level = 0; level < 8; ++level)
      node = 2 * node + (x > load_shared<float>(borders + 4 * node) ? 1 : 0);
    return node - 256;
  }
};

/// n codes in a word, the first in its lowest byte: one access.
template <int n>
KFORMER_DEVICE std::uint32_t load_codes(const std::uint8_t* from) {
  static_assert(n == 1 || n == 4);
  if constexpr (n == 1)
    return *from;
  else
    return load_words<1>(from).word[0];
}
template <int n>
KFORMER_DEVICE void store_codes(std::uint8_t* to, std::uint32_t codes) {
  if constexpr (n == 1)
    *to = static_cast<std::uint8_t>(codes);
  else
    store_words(to, Words<1>{{codes}});
}

/// Shared memory of a block: the tables, the new states of each warp until their scales are known, and the
/// factor on gradients.
struct CodedShared {
  static constexpr int warps = adamw_threads / 32, numbers = sizeof(CodedTables),
                       numbers_of_warp = 2 * coded_block * sizeof(float),
                       factor = numbers + warps * numbers_of_warp, bytes = factor + sizeof(float);
};

// Occupancy of CodedAdamWKernel: registers limit it to four blocks, on machines with 100 KB of shared
// memory that does, too. A thread has gradients, codes and weights in flight, 32 or 40 bytes, all threads
// of a multiprocessor 32 KB and more. A multiprocessor's share of the memory bandwidth (H200: 4.8 TB/s for
// 132) is 36 KB per microsecond, and a latency is shorter.
template <class T>
struct CodedAdamWKernel {
  static constexpr int threads = adamw_threads, blocks_per_multiprocessor = 4,
                       shared_bytes = CodedShared::bytes;

  AdamWPieces pieces;
  AdamWRule<float> rule;
  AdamWScaling scaling;

  KFORMER_DEVICE void operator()() const {
    if (scaling.skips<float>()) return;
    if (thread_index() == 0)
      store_shared(place(CodedShared::factor), static_cast<float>(scaling.factor<float>()));
    copy_tables();
    block_barrier();
    const AdamWPiece piece = piece_of(pieces, block_index());
    const Arrays arrays(pieces.items[piece.item], load_shared<float>(place(CodedShared::factor)));
    const bool is_aligned = arrays.is_aligned();
    for (std::int64_t begin = piece.begin + thread_index() / 32 * coded_block; begin < piece.end;
         begin += CodedShared::warps * coded_block) {
      const bool is_whole = begin + coded_block <= piece.end;
      if (is_aligned && is_whole)
        step<Arrays::elements>(arrays, begin, coded_block);
      else
        step<1>(arrays, begin, is_whole ? coded_block : static_cast<int>(piece.end - begin));
    }
  }

 private:
  struct Arrays : AdamWWeights<T> {
    std::uint8_t *m, *v;
    float *m_scale, *v_scale;

    KFORMER_DEVICE Arrays(const AdamWItem& item, float gradient_factor)
        : AdamWWeights<T>(item, gradient_factor),
          m(static_cast<std::uint8_t*>(item.m)),
          v(static_cast<std::uint8_t*>(item.v)),
          m_scale(item.m_scale),
          v_scale(item.v_scale) {}
    KFORMER_DEVICE bool is_aligned() const {
      return AdamWWeights<T>::is_aligned() && (this->address(m) | this->address(v)) % this->elements == 0;
    }
  };

  KFORMER_DEVICE static void copy_tables() {
    static_assert(sizeof(CodedTables) == threads * sizeof(Chunk));
    const auto* from = reinterpret_cast<const Chunk*>(&tables) + thread_index();
    store_shared(place(thread_index() * sizeof(Chunk)), load_words<4>(from));
  }
  KFORMER_DEVICE static SharedAddress place(std::size_t offset) {
    return shared_begin() + static_cast<SharedAddress>(offset);
  }
  KFORMER_DEVICE static SharedMap m_map() {
    return {place(offsetof(CodedTables, m_value)), place(offsetof(CodedTables, m_borders))};
  }
  KFORMER_DEVICE static SharedMap v_map() {
    return {place(offsetof(CodedTables, v_value)), place(offsetof(CodedTables, v_borders))};
  }

  /// The step of the first `count` elements of the block that begins at `begin`, n per access. A thread encodes
  /// the numbers that it has computed. The bits of magnitudes are ordered like the magnitudes, and NaN is above
  /// all of them.
  template <int n>
  KFORMER_DEVICE void step(const Arrays& a, std::int64_t begin, int count) const {
    float *m_scale = a.m_scale + begin / coded_block, *v_scale = a.v_scale + begin / coded_block;
    const float m_factor = *m_scale, v_factor = *v_scale;
    const SharedAddress m_new =
                            place(CodedShared::numbers + thread_index() / 32 * CodedShared::numbers_of_warp),
                        v_new = m_new + coded_block * sizeof(float);
    std::uint32_t m_largest = 0, v_largest = 0;
    KFORMER_DEVICE_NO_UNROLL
    for (int i = thread_index() % 32 * n; i < count; i += 32 * n) {
      float g[n], w[n], m[n], v[n];
      load_elements(a.gradient, begin + i, g);
      a.load(begin + i, w);
      const std::uint32_t m_codes = load_codes<n>(a.m + begin + i), v_codes = load_codes<n>(a.v + begin + i);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < n; ++k) {
        m[k] = m_map().decoded(m_codes >> 8 * k & 0xff) * m_factor;
        v[k] = v_map().decoded(v_codes >> 8 * k & 0xff) * v_factor;
        rule(g[k] * a.factor, a.decay, m[k], v[k], w[k]);
        m_largest = larger(m_largest, float_as_bits(m[k]) & 0x7fffffff);
        v_largest = larger(v_largest, float_as_bits(v[k]) & 0x7fffffff);
      }
      a.store(begin + i, w);
      store_shared(m_new + 4 * i, narrowed<float, n>(m));
      store_shared(v_new + 4 * i, narrowed<float, n>(v));
    }
    encode<n>(m_new, count, largest_of_warp(m_largest), m_map(), a.m + begin, m_scale);
    encode<n>(v_new, count, largest_of_warp(v_largest), v_map(), a.v + begin, v_scale);
  }
  KFORMER_DEVICE static std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a > b ? a : b; }

  template <int n>
  KFORMER_DEVICE static void encode(SharedAddress numbers, int count, std::uint32_t largest,
                                    const SharedMap& map, std::uint8_t* to, float* scale) {
    if (thread_index() % 32 == 0) *scale = bits_as_float(largest);
    const float divisor = largest == 0 ? 1.0f : bits_as_float(largest);
    KFORMER_DEVICE_NO_UNROLL
    for (int i = thread_index() % 32 * n; i < count; i += 32 * n) {
      float x[n];
      widen<float, n>(load_shared<Words<n>>(numbers + 4 * i), x);
      std::uint32_t codes = 0;
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < n; ++k) codes |= map.code_of(x[k] / divisor) << 8 * k;
      store_codes<n>(to + i, codes);
    }
  }
};

}  // namespace kformer::Impl::cuda
