// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward_block.hpp"
#include "ops/attention/cuda/float_products.hpp"

/// \file
/// Attention backward of floats on tensor cores, by three products of TF32 for each.

namespace kformer::Impl::cuda {

// Occupancy of FloatBackwardKernel: registers or shared memory limit it to four to twelve warps. A thread keeps the sums of
// one or two gradients (32 to 128 registers), scores and their gradients, and both parts of the factors under way. A row
// that is owned takes 512 to 1024 bytes of shared memory: 100 KB have room for four warps of 128 features, or six of 96.
constexpr BackwardShape float_backward_shape(int features, SharedMemory memory) {
  const bool large = memory == SharedMemory::large;
  if (features <= 64) return large ? BackwardShape{4, 2, 16, 2} : BackwardShape{8, 1, 32, 1};
  if (features <= 96) return large ? BackwardShape{4, 1, 16, 2} : BackwardShape{6, 1, 16, 1};
  return {large ? 8 : 4, 1, 16, 1};
}

/// A block that owns queries makes dq, one that owns keys makes dk and dv.
template <int features_, Side side_, SharedMemory memory_>
struct FloatBackwardTiles {
  static constexpr BackwardShape shape = float_backward_shape(features_, memory_);
  static constexpr int features = features_;  ///< of q, k and v, padded
  static constexpr Side side = side_;
  static constexpr bool first = true, second = side == Side::keys;
  static constexpr int warps = shape.warps, row_tiles = shape.row_tiles, partners = shape.partners,
                       rows = 16 * warps * row_tiles;

  static constexpr bool runs_on(const Machine& m) { return runs_with(memory_, m); }
};

template <class Tiles>
struct FloatBackwardKernel {
  using Base = BackwardBlock<Tiles, float>;
  static constexpr int threads = Base::threads,
                       blocks_per_multiprocessor = Tiles::shape.blocks_per_multiprocessor,
                       shared_bytes = Base::shared_bytes;
  static constexpr bool runs_on(const Machine& m) { return Tiles::runs_on(m); }

  GradientArgumentsOf<float> g;
  Sequences owned;  ///< the owned tokens in the place of queries

  KFORMER_DEVICE void operator()() const { differentiate_tile<Block, Tiles, Floats>(g, owned); }

 private:
  using Products = FloatProducts<Tiles::features, Tiles::row_tiles, Tiles::partners>;

  struct Block : Base {
    using Base::Base, Base::first_row, Base::lane, Base::of_first, Base::of_second;
    using Scores = typename Base::Scores;

    /// False if some gradient may be wrong. What tensor cores make of numbers that are not finite, or that cannot be
    /// split, is never finite, also where a row does not meet them: 0 · NaN is not 0.
    KFORMER_DEVICE bool run() {
      this->pass_partners(*this);
      if (any_of_block(is_doubtful())) return false;
      this->store(
          [](float* to, float x, float y) { store_words(to, Words<2>{float_as_bits(x), float_as_bits(y)}); });
      return true;
    }

    KFORMER_DEVICE void multiply(Scores& result, SharedAddress own, SharedAddress partner, int present) const {
      Products::multiply(result, own, first_row(0), partner, present, lane);
    }

    /// Nothing ends early: `run` checks the sums.
    KFORMER_DEVICE static bool spoils(const SharedOperands&) { return false; }

    template <class Meanwhile>
    KFORMER_DEVICE void add(const Scores& weight, const Scores& slope, const SharedOperands& partner,
                            Meanwhile meanwhile) {
      meanwhile();
      if constexpr (Tiles::second) Products::add(of_second, weight, partner.second, this->a.v_head_dim, lane);
      Products::add(of_first, slope, partner.first, this->a.head_dim, lane);
    }

    /// Rows past the last one do not count: the weights of no key can be anything.
    KFORMER_DEVICE bool is_doubtful() const {
      bool found = false;
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < Tiles::row_tiles; ++m) {
        KFORMER_DEVICE_UNROLL
        for (int half = 0; half < 2; ++half) {
          if (this->row_of(m, half) >= this->length) continue;
          found = found || some_doubtful(of_first[m], half);
          if constexpr (Tiles::second) found = found || some_doubtful(of_second[m], half);
        }
      }
      return found;
    }
  };
};

}  // namespace kformer::Impl::cuda
