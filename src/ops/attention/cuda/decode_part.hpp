// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"

/// \file
/// Parts of the keys in decoding, and the combination of their results.

namespace kformer::Impl::cuda {

/// What a block of decoding has: a tile of queries with all heads that share a key head, and a part of the keys
/// that any of them sees.
struct DecodePart {
  QueryTile tile;
  int kv_head, group, number;
  int rows, begin, end;  ///< how many rows, and which keys

  KFORMER_DEVICE int query(int row) const { return tile.first + row / group; }
  KFORMER_DEVICE int head(int row) const { return kv_head * group + row % group; }
};

/// Part `number` of the tile's `parts`, in steps of `keys` keys.
KFORMER_DEVICE DecodePart find_part(const AttentionArguments& a, const QueryTile& tile, int queries,
                                    int kv_head, int number, int parts, int keys) {
  const int end = tile.first + queries < tile.q_len ? tile.first + queries : tile.q_len;
  const int first_key = visible_keys(a, tile, tile.first).begin, last = visible_keys(a, tile, end - 1).end;
  const int seen = last > first_key ? last - first_key : 0;
  const int length = ((seen + parts - 1) / parts + keys - 1) / keys * keys, from = first_key + number * length;
  return {tile,
          kv_head,
          a.group,
          number,
          (end - tile.first) * a.group,
          from,
          from + length < first_key + seen ? from + length : first_key + seen};
}

/// Places in `Partials`.
struct PartialRow {
  const Partials& p;
  std::int64_t row;

  KFORMER_DEVICE float* values(int part) const { return p.data + (row * p.parts + part) * p.features; }
  KFORMER_DEVICE RowPart& sum(int part) const {
    return reinterpret_cast<RowPart*>(p.data + p.rows * p.parts * p.features)[row * p.parts + part];
  }
};
KFORMER_DEVICE PartialRow partial_row(const Partials& p, const AttentionArguments& a, const Sequences& s,
                                      const DecodePart& part, int row) {
  const std::int64_t token = static_cast<std::int64_t>(part.tile.batch) * s.q_len + part.tile.q_begin;
  return {p, (token + part.query(row)) * a.q_heads + part.head(row)};
}

/// The weight of a part among parts the largest power of which is `highest`.
KFORMER_DEVICE float part_weight(const RowPart& part, float highest) {
  return exp2_fast(part.power - (highest == -infinity() ? 0 : highest));
}

/// The rows of a part without tensor cores: see `attend_row`.
template <Half type, int features>
KFORMER_DEVICE_CALL void decode_exactly(const AttentionArguments& a, const Sequences& s,
                                        const Partials& partials, const DecodePart& part, int warps) {
  const int lane = thread_index() % 32;
  for (int r = thread_index() / 32; r < part.rows; r += warps) {
    Visible v = visible_keys(a, part.tile, part.query(r));
    if (v.begin < part.begin) v.begin = part.begin;
    if (v.end > part.end) v.end = part.end;
    const auto row = attend_row<Halves<type>, features>(a, part.tile, part.query(r), part.head(r), v);
    const PartialRow to = partial_row(partials, a, s, part, r);
    KFORMER_DEVICE_UNROLL
    for (int n = 0; n < features / 32; ++n)
      if (n * 32 + lane < a.v_head_dim) to.values(part.number)[n * 32 + lane] = row.result[n];
    if (lane == 0) to.sum(part.number) = row.part;
  }
}

/// A block for each row. A thread has two features of every n-th part, in the order of the keys; what the threads of
/// a pair of features have is added in order.
template <Half type>
struct CombineKernel {
  struct alignas(16) Sums {
    float weights, low, high;
  };
  static constexpr int threads = 256, blocks_per_multiprocessor = 1,
                       shared_bytes = threads * static_cast<int>(sizeof(Sums));

  AttentionArguments a;
  Sequences sequences;
  Partials partials;

  KFORMER_DEVICE void operator()() const {
    const PartialRow row{partials, block_index()};
    const int head = block_index() % a.q_heads, token = block_index() / a.q_heads % sequences.q_len,
              batch = block_index() / a.q_heads / sequences.q_len;
    if (!has_tile(sequences, token)) return;
    const int pairs = a.v_head_dim / 2, groups = threads / pairs, thread = thread_index();
    const float highest = highest_power(row);
    if (thread < pairs * groups)
      store_shared(shared_sums(thread), sums_of(row, thread / pairs, groups, 2 * (thread % pairs), highest));
    block_barrier();
    if (thread >= pairs) return;
    Sums all{0, 0, 0};
    for (int group = 0; group < groups; ++group) {
      const auto sums = load_shared<Sums>(shared_sums(group * pairs + thread));
      all.weights += sums.weights, all.low += sums.low, all.high += sums.high;
    }
    const float inverse = all.weights == 0 ? 0 : 1 / all.weights;
    *reinterpret_cast<std::uint32_t*>(a.out.row(batch, token, head) + 2 * thread) =
        pack<type>(all.low * inverse, all.high * inverse);
    if (thread == 0)
      a.lse.at(batch, head, token) = all.weights == 0 ? -infinity() : highest * ln_2 + natural_log(all.weights);
  }

 private:
  static KFORMER_DEVICE SharedAddress shared_sums(int slot) {
    return shared_begin() + static_cast<SharedAddress>(slot * static_cast<int>(sizeof(Sums)));
  }

  /// Of all parts; each warp finds it by itself.
  KFORMER_DEVICE float highest_power(const PartialRow& row) const {
    float highest = -infinity();
    for (int n = thread_index() % 32; n < partials.parts; n += 32) highest = largest(highest, row.sum(n).power);
    KFORMER_DEVICE_UNROLL
    for (int lanes = 16; lanes > 0; lanes /= 2) highest = largest(highest, shuffle_xor(highest, lanes));
    return highest;
  }

  KFORMER_DEVICE Sums sums_of(const PartialRow& row, int first_part, int step, int feature,
                              float highest) const {
    Sums sums{0, 0, 0};
    for (int n = first_part; n < partials.parts; n += step) {
      const RowPart part = row.sum(n);
      const float weight = part_weight(part, highest);
      sums.weights += weight * part.sum;
      sums.low += weight * row.values(n)[feature];
      sums.high += weight * row.values(n)[feature + 1];
    }
    return sums;
  }
};

}  // namespace kformer::Impl::cuda
