// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/arguments.hpp"

/// \file
/// Tiles of attention in shared memory and registers.

namespace kformer::Impl::cuda {

/// Rows of `features` 16-bit numbers in shared memory, in chunks of 16 bytes. Chunk c of row r is stored where
/// chunk c xor (r mod 8) would, so that eight rows of one column of chunks lie in different banks.
template <int features>
struct Swizzled {
  static constexpr int chunks = features / 8;
  static constexpr int row_bytes = 2 * features;
  static_assert(features % 64 == 0 || features == 32 || features == 96);

  /// The place of a chunk, in bytes from the beginning.
  KFORMER_DEVICE static constexpr SharedAddress at(int row, int chunk) {
    // 64 features fill all banks once; the last 32 of 96 fill half of them, and pairs of rows take turns.
    const bool fills_banks = chunks % 8 == 0 || chunk < chunks / 8 * 8;
    return static_cast<SharedAddress>(row * row_bytes + (chunk ^ (fills_banks ? row & 7 : row >> 1 & 3)) * 16);
  }
};

/// The sequence of a tile of queries, and the first of its queries.
struct QueryTile {
  int batch, q_begin, q_len, kv_begin, kv_len, first;
};

KFORMER_DEVICE int clamped(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

/// Which queries tile `tile` of `rows` queries each has. Where there is none `q_len` is 0.
KFORMER_DEVICE QueryTile find_tile(const Sequences& s, int rows, int tile) {
  if (!s.q_starts) {
    const int tiles = (s.q_len + rows - 1) / rows;
    // The last queries see the most keys: they come first.
    return {tile % s.count, 0, s.q_len, 0, s.kv_len, (tiles - 1 - tile / s.count) * rows};
  }
  // Starts are loaded one by one: four or eight at a time have forward for 64 features on warpgroups spill registers.
  // Those that decrease or exceed the whole must not lead out of it.
  int q_end = clamped(s.q_starts[0], 0, s.q_len), kv_end = clamped(s.kv_starts[0], 0, s.kv_len);
  for (int n = 0; n < s.count; ++n) {
    const int q_begin = q_end, kv_begin = kv_end;
    q_end = clamped(s.q_starts[n + 1], q_begin, s.q_len);
    kv_end = clamped(s.kv_starts[n + 1], kv_begin, s.kv_len);
    const int length = q_end - q_begin, tiles = (length + rows - 1) / rows;
    if (tile < tiles) return {0, q_begin, length, kv_begin, kv_end - kv_begin, (tiles - 1 - tile) * rows};
    tile -= tiles;
  }
  return {};
}

/// Whether some tile has this query. All do unless the starts of packed sequences are wrong.
KFORMER_DEVICE bool has_tile(const Sequences& s, int query) {
  if (!s.q_starts) return true;
  if (query < s.q_starts[0]) return false;
  for (int n = s.count; n > 0; --n)
    if (query < s.q_starts[n]) return true;
  return false;
}

template <int rows>
KFORMER_DEVICE QueryTile find_tile(const Sequences& s, int tile) {
  return find_tile(s, rows, tile);
}

/// At least as many tiles as `find_tile` finds; the lengths of packed sequences are known to the device alone.
inline std::int64_t most_tiles(const Sequences& s, int rows) {
  const std::int64_t tiles = (s.q_len + rows - 1) / rows;
  return s.q_starts ? tiles + s.count : tiles * s.count;
}
template <int rows>
std::int64_t most_tiles(const Sequences& s) {
  return most_tiles(s, rows);
}

/// The keys that query `query` sees: [begin, end). With `causal` the last query sees the last key.
struct Visible {
  int begin, end;
};
KFORMER_DEVICE Visible visible_keys(const AttentionRules& a, const QueryTile& t, int query) {
  const int diagonal = query + t.kv_len - t.q_len;
  Visible v{0, t.kv_len};
  if (a.causal && diagonal + 1 < v.end) v.end = diagonal + 1;
  if (a.window > 0) {
    if (diagonal - a.window + 1 > v.begin) v.begin = diagonal - a.window + 1;
    if (!a.causal && diagonal + a.window < v.end) v.end = diagonal + a.window;
  }
  return v;
}

/// `opaque(x)` where 0 ≤ x < n, which the compiler then still knows.
template <int n>
KFORMER_DEVICE int opaque_below(int x) {
  return static_cast<int>(static_cast<unsigned>(opaque(x)) % n);
}

/// Rows of `features` numbers of type `Stored`, as rows of 16-bit numbers.
template <class Stored, int features>
using TileOf = Swizzled<features* static_cast<int>(sizeof(Stored)) / 2>;

/// `f(row, chunk)` for every chunk of this thread's share of the rows of a tile, without a branch where all shares are equal.
template <int rows, class Tile, int threads, class F>
KFORMER_DEVICE void for_each_chunk(F f) {
  constexpr int chunks = Tile::chunks, count = rows * chunks;
  const int first = opaque_below<threads>(thread_index());
  KFORMER_DEVICE_UNROLL
  for (int begin = 0; begin < count; begin += threads) {
    const int i = begin + first;
    if (begin + threads <= count || i < count) f(i / chunks, i % chunks);
  }
}

/// Begins to copy rows of `features` numbers; zeros replace rows from `rows_left` on and features from
/// `present` on.
template <int rows, int features, int threads, class Stored>
KFORMER_DEVICE void copy_rows(SharedAddress to, const Stored* from, int stride, int rows_left, int present) {
  using Tile = TileOf<Stored, features>;
  constexpr int of_chunk = features / Tile::chunks;
  for_each_chunk<rows, Tile, threads>([&](int row, int chunk) {
    const bool is_there = row < rows_left && chunk * of_chunk < present;
    copy_async(to + Tile::at(row, chunk),
               is_there ? from + static_cast<std::int64_t>(row) * stride + chunk * of_chunk : from, is_there);
  });
}

/// Whether one of two numbers is infinite or NaN.
template <Half type>
KFORMER_DEVICE bool some_not_finite(std::uint32_t both) {
  constexpr std::uint32_t exponent = type == Half::bf16 ? 0x7f80 : 0x7c00;
  return (both & exponent) == exponent || (both >> 16 & exponent) == exponent;
}
/// Whether one of the numbers that this thread copied by `copy_rows` is.
template <Half type, int rows, int features, int threads>
KFORMER_DEVICE bool copied_not_finite(SharedAddress rows_begin) {
  bool found = false;
  for_each_chunk<rows, Swizzled<features>, threads>([&](int row, int chunk) {
    const auto numbers = load_shared<Chunk>(rows_begin + Swizzled<features>::at(row, chunk));
    KFORMER_DEVICE_UNROLL
    for (int j = 0; j < 4; ++j) found |= some_not_finite<type>(numbers.word[j]);
  });
  return found;
}

template <int n>
KFORMER_DEVICE void clear(float (&x)[n][4]) {
  KFORMER_DEVICE_UNROLL
  for (int j = 0; j < n; ++j) {
    KFORMER_DEVICE_UNROLL
    for (int i = 0; i < 4; ++i) x[j][i] = 0;
  }
}
template <int m, int n>
KFORMER_DEVICE void clear(float (&x)[m][n][4]) {
  KFORMER_DEVICE_UNROLL
  for (int j = 0; j < m; ++j) clear(x[j]);
}

/// −∞, or `instead`, for keys that are not seen, of scores in the fragments of a warp: `seen` by a thread's two rows of 16,
/// the scores from key `first` on.
template <int columns>
KFORMER_DEVICE void hide(float (&score)[columns][4], const Visible (&seen)[2], int first,
                         float instead = -infinity()) {
  const int lane = thread_index() % 32;
  KFORMER_DEVICE_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int begin = seen[half].begin - first, end = seen[half].end - first;
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < columns; ++n) {
      KFORMER_DEVICE_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int key = 8 * n + 2 * (lane % 4) + i;
        if (key < begin || key >= end) score[n][2 * half + i] = instead;
      }
    }
  }
}

}  // namespace kformer::Impl::cuda
