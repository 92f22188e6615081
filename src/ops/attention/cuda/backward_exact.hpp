// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/exact.hpp"
#include "ops/attention/cuda/gradients.hpp"

/// \file
/// The gradients of a tile row by row, without tensor cores; nothing that a row does not meet enters them:
/// the fallback of a tile if a number that passes by is not finite and only some of its rows meet it, or, of floats,
/// if a sum is doubtful.

namespace kformer::Impl::cuda {

/// A warp has a row, and a lane has every 32nd feature. Both gradients are made; `first` and `second`
/// say which are wanted.
template <class Numbers, int features, Side side, bool first, bool second>
KFORMER_DEVICE_CALL void differentiate_exactly(const GradientArgumentsOf<typename Numbers::Stored>& g,
                                               const QueryTile& tile, int own_head, int rows, int warps) {
  using Stored = typename Numbers::Stored;
  const AttentionRules& a = g.a;
  const int lane = thread_index() % 32;
  const Differentiation differentiate(a);
  const int heads = side == Side::queries ? 1 : a.group;
  for (int row = tile.first + thread_index() / 32; row < tile.first + rows && row < owned_length<side>(tile);
       row += warps) {
    const Visible v = visible_partners<side>(a, tile, row);
    float of_first[features / 32] = {}, of_second[features / 32] = {};
    for (int n = 0; n < heads; ++n) {
      const int q_head = side == Side::queries ? own_head : own_head * a.group + n,
                kv_head = side == Side::queries ? own_head / a.group : own_head;
      const auto partner = [&](int i) {
        return side == Side::queries ? key_rows(g, tile, kv_head, i) : query_rows(g, tile, q_head, i);
      };
      for (int begin = v.begin; begin < v.end; begin += 32) {
        PairGradient mine{0, 0};
        if (begin + lane < v.end) {
          const int query = side == Side::queries ? row : begin + lane,
                    key = side == Side::queries ? begin + lane : row;
          const OperandRows<Stored> q = query_rows(g, tile, q_head, query), k = key_rows(g, tile, kv_head, key);
          mine = differentiate(product_of<Numbers>(q.first, k.first, a.head_dim),
                               product_of<Numbers>(q.second, k.second, a.v_head_dim),
                               statistics_of(g, tile, q_head, query));
        }
        for (int i = 0; i < 32 && begin + i < v.end; ++i) {
          const float weight = bits_as_float(shuffle(float_as_bits(mine.weight), i)),
                      slope = bits_as_float(shuffle(float_as_bits(mine.slope), i));
          const OperandRows<Stored> other = partner(begin + i);
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < features / 32; ++m) {
            const int feature = m * 32 + lane;
            if (first && feature < a.head_dim) of_first[m] += slope * Numbers::read(other.first[feature]);
            if (second && feature < a.v_head_dim) of_second[m] += weight * Numbers::read(other.second[feature]);
          }
        }
      }
    }
    const GradientRows<Stored> to = gradient_rows<side>(g, tile, own_head, row);
    KFORMER_DEVICE_UNROLL
    for (int m = 0; m < features / 32; ++m) {
      const int feature = m * 32 + lane;
      if (first && feature < a.head_dim) to.first[feature] = Numbers::stored(of_first[m] * a.scale);
      if (second && feature < a.v_head_dim) to.second[feature] = Numbers::stored(of_second[m]);
    }
  }
}

}  // namespace kformer::Impl::cuda
