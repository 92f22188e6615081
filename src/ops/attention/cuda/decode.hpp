// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/decode_part.hpp"

/// \file
/// Attention forward for few queries and many keys, as in generation, by `mma.sync` (compute capability 8.0 and
/// later). All queries of all heads that share a key head are rows of one block, so that keys and values are
/// read once; the next of them are on their way while the block works.

namespace kformer::Impl::cuda {

template <Half type_, int features_, int row_tiles_, int warps_, int keys_>
struct DecodeTiles {
  static constexpr Half type = type_;
  static constexpr int features = features_;    ///< of q, k and v, padded
  static constexpr int row_tiles = row_tiles_;  ///< of 16 rows
  static constexpr int warps = warps_;          ///< `row_tiles` for each group of keys
  static constexpr int keys = keys_;            ///< per pass
  static constexpr int rows = 16 * row_tiles, key_groups = warps / row_tiles;
  static_assert(warps % row_tiles == 0 && keys % (16 * key_groups) == 0);
};

// Occupancy of DecodeKernel: shared memory limits it, or registers if there are many rows. The kernel is
// designed to be limited by memory, not arithmetic, so the number of bytes in flight counts. Asynchronous
// copies need no threads to wait for them: a block has a whole pass of keys and values in flight (16 to 32 KB),
// all blocks of a multiprocessor 16 to 96 KB. Its share of the memory bandwidth (H200: 4.8 TB/s for 132) is 36
// KB per microsecond, and a latency is shorter. Smaller passes would raise the occupancy but need barriers more
// often.
template <class Tiles>
struct DecodeKernel {
  static constexpr Half type = Tiles::type;
  static constexpr int features = Tiles::features, warps = Tiles::warps, keys = Tiles::keys, rows = Tiles::rows,
                       key_groups = Tiles::key_groups, warp_keys = keys / key_groups;
  static constexpr int threads = 32 * warps, blocks_per_multiprocessor = 1;
  static constexpr int row_bytes = Swizzled<features>::row_bytes;
  static constexpr int key_bytes = keys * row_bytes, pass_bytes = 2 * key_bytes;
  /// Sums go where keys were; 8 more numbers per row put the rows of a fragment in different banks.
  static constexpr int sum_bytes = 4 * (features + 8), all_sums_bytes = 16 * warps * sum_bytes;
  static constexpr int operand_bytes = rows * row_bytes + 2 * pass_bytes,
                       result_bytes = all_sums_bytes + 16 * warps * static_cast<int>(sizeof(RowPart));
  static constexpr int shared_bytes = operand_bytes > result_bytes ? operand_bytes : result_bytes;
  static_assert(shared_bytes <= 99 * 1024);

  AttentionArguments a;
  Sequences sequences;
  Partials partials;

  KFORMER_DEVICE void operator()() const {
    const int kv_heads = a.q_heads / a.group, queries = rows / a.group;
    const int number = block_index() % partials.parts, rest = block_index() / partials.parts;
    const QueryTile tile = find_tile(sequences, queries, rest / kv_heads);
    if (tile.q_len == 0) return;
    const DecodePart part = find_part(a, tile, queries, rest % kv_heads, number, partials.parts, keys);
    if (!Block(*this, part).run()) decode_exactly<type, features>(a, sequences, partials, part, warps);
  }

 private:
  struct alignas(8) Pair {
    float low, high;
  };

  /// What a thread has of its block: scores and results in the fragments of its warp, which has a tile of rows
  /// and a group of the keys of each pass.
  struct Block {
    const DecodeKernel& kernel;
    const AttentionArguments& a;
    const DecodePart& part;
    int lane, warp, row_tile, key_group;
    SharedAddress shared_queries, shared_passes;
    Visible seen[2];  ///< by the rows of this thread
    float result[features / 8][4];
    Softmax<1> softmax;

    KFORMER_DEVICE Block(const DecodeKernel& of_kernel, const DecodePart& of_part)
        : kernel(of_kernel),
          a(of_kernel.a),
          part(of_part),
          lane(thread_index() % 32),
          warp(thread_index() / 32),
          row_tile(warp % Tiles::row_tiles),
          key_group(warp / Tiles::row_tiles),
          shared_queries(shared_begin()),
          shared_passes(shared_begin() + rows * row_bytes),
          softmax(of_kernel.a) {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        seen[half] = visible_keys(a, part.tile, part.query(16 * row_tile + lane / 4 + 8 * half));
        if (seen[half].end > part.end) seen[half].end = part.end;
      }
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < features / 8; ++n) {
        KFORMER_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) result[n][i] = 0;
      }
    }

    /// False if something is seen by some rows alone that would spoil the results of others.
    KFORMER_DEVICE bool run() {
      copy_queries();
      if (!pass_keys()) return false;
      store();
      return true;
    }

    KFORMER_DEVICE void copy_queries() const {
      constexpr int chunks = Swizzled<features>::chunks;
      for (int i = thread_index(); i < rows * chunks; i += threads) {
        const int row = i / chunks, chunk = i % chunks;
        const bool is_there = row < part.rows && chunk * 8 < a.head_dim;
        const std::uint16_t* from = a.q.row(part.tile.batch, part.tile.q_begin + part.query(is_there ? row : 0),
                                            part.head(is_there ? row : 0));
        copy_async(shared_queries + Swizzled<features>::at(row, chunk), from + (is_there ? chunk * 8 : 0),
                   is_there);
      }
    }
    KFORMER_DEVICE void copy_pass(SharedAddress to, int first) const {
      const int token = part.tile.kv_begin + first, left = part.end - first;
      copy_rows<keys, features, threads>(to, a.k.row(part.tile.batch, token, part.kv_head), a.k.token_stride,
                                         left, a.head_dim);
      copy_rows<keys, features, threads>(to + key_bytes, a.v.row(part.tile.batch, token, part.kv_head),
                                         a.v.token_stride, left, a.v_head_dim);
    }

    KFORMER_DEVICE bool pass_keys() {
      const Visible first = visible_keys(a, part.tile, part.query(0)),
                    last = visible_keys(a, part.tile, part.query(part.rows - 1));
      if (part.begin < part.end) copy_pass(shared_passes, part.begin);
      commit_copies();
      int parity = 0;
      for (int key = part.begin; key < part.end; key += keys, parity ^= 1) {
        const SharedAddress here = shared_passes + parity * pass_bytes;
        if (key + keys < part.end) copy_pass(shared_passes + (parity ^ 1) * pass_bytes, key + keys);
        commit_copies();
        wait_copies<1>();
        block_barrier();  // this pass is there
        const int end = key + keys < part.end ? key + keys : part.end;
        const bool differs = last.begin > key || first.end < end;
        // A value that a row does not see may be NaN, and 0 · NaN is not 0.
        if (differs && any_of_block(copied_not_finite<type, keys, features, threads>(here + key_bytes)))
          return wait_copies<0>(), false;
        float score[warp_keys / 8][4];
        multiply_keys(here, score);
        softmax.cap(score);
        if (differs || end < key + keys) hide(score, seen, key + key_group * warp_keys);
        std::uint32_t weight[warp_keys / 16][4];
        softmax.template pass<type>(0, score, weight, result);
        multiply_values(here + key_bytes, weight);
        block_barrier();  // and may go
      }
      wait_copies<0>();
      block_barrier();
      return true;
    }

    KFORMER_DEVICE void multiply_keys(SharedAddress from, float (&score)[warp_keys / 8][4]) const {
      KFORMER_DEVICE_UNROLL
      for (int n = 0; n < warp_keys / 8; ++n) {
        KFORMER_DEVICE_UNROLL
        for (int i = 0; i < 4; ++i) score[n][i] = 0;
      }
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k) {
        std::uint32_t query[4];
        load_matrices(query,
                      shared_queries + Swizzled<features>::at(16 * row_tile + lane % 16, 2 * k + lane / 16));
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < warp_keys / 16; ++n) {
          std::uint32_t b[4];
          load_matrices(b,
                        from + Swizzled<features>::at(key_group * warp_keys + 16 * n + lane % 8 + lane / 16 * 8,
                                                      2 * k + lane / 8 % 2));
          multiply_add<type>(score[2 * n], query, b[0], b[1]);
          multiply_add<type>(score[2 * n + 1], query, b[2], b[3]);
        }
      }
    }

    KFORMER_DEVICE void multiply_values(SharedAddress from, const std::uint32_t (&weight)[warp_keys / 16][4]) {
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < warp_keys / 16; ++k) {
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 16; ++n) {
          std::uint32_t b[4];
          load_matrices_transposed(
              b, from + Swizzled<features>::at(key_group * warp_keys + 16 * k + lane % 16, 2 * n + lane / 16));
          multiply_add<type>(result[2 * n], weight[k], b[0], b[1]);
          multiply_add<type>(result[2 * n + 1], weight[k], b[2], b[3]);
        }
      }
    }

    static KFORMER_DEVICE SharedAddress shared_sums(int slot) { return shared_begin() + slot * sum_bytes; }
    static KFORMER_DEVICE SharedAddress shared_part(int slot) {
      return shared_begin() + all_sums_bytes + slot * static_cast<int>(sizeof(RowPart));
    }

    /// Puts the groups of keys together, in order.
    KFORMER_DEVICE void store() const {
      KFORMER_DEVICE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const RowPart sum = softmax.part(0, half);
        const int slot = 16 * warp + lane / 4 + 8 * half;
        if (lane % 4 == 0) store_shared(shared_part(slot), sum);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 8; ++n)
          store_shared(shared_sums(slot) + 4 * (8 * n + 2 * (lane % 4)),
                       Pair{result[n][2 * half], result[n][2 * half + 1]});
      }
      block_barrier();
      for (int row = warp; row < part.rows; row += warps) {
        const PartialRow to = partial_row(kernel.partials, a, kernel.sequences, part, row);
        RowPart all{-infinity(), 0};
        float weight[key_groups];
        KFORMER_DEVICE_UNROLL
        for (int g = 0; g < key_groups; ++g)
          all.power = largest(all.power, load_shared<RowPart>(shared_part(g * rows + row)).power);
        KFORMER_DEVICE_UNROLL
        for (int g = 0; g < key_groups; ++g) {
          const auto sum = load_shared<RowPart>(shared_part(g * rows + row));
          weight[g] = part_weight(sum, all.power);
          all.sum += weight[g] * sum.sum;
        }
        for (int feature = lane; feature < a.v_head_dim; feature += 32) {
          float sum = 0;
          KFORMER_DEVICE_UNROLL
          for (int g = 0; g < key_groups; ++g)
            sum += weight[g] * load_shared<float>(shared_sums(g * rows + row) + 4 * feature);
          to.values(part.number)[feature] = sum;
        }
        if (lane == 0) to.sum(part.number) = all;
      }
    }
  };
};

}  // namespace kformer::Impl::cuda
