// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/backward_block.hpp"

/// \file
/// Attention backward of 16-bit numbers: P and dS are rounded where they enter a product.

namespace kformer::Impl::cuda {

template <class Tiles>
struct BackwardKernel {
  static constexpr Half type = Tiles::type;
  using Base = BackwardBlock<Tiles, std::uint16_t>;
  static constexpr int threads = Base::threads, blocks_per_multiprocessor = Tiles::blocks_per_multiprocessor,
                       shared_bytes = Base::shared_bytes;
  static constexpr bool runs_on(const Machine& m) { return Tiles::runs_on(m); }

  GradientArguments g;
  Sequences owned;  ///< the owned tokens in the place of queries

  KFORMER_DEVICE void operator()() const { differentiate_tile<Block, Tiles, Halves<type>>(g, owned); }

 private:
  static constexpr int features = Tiles::features, row_tiles = Tiles::row_tiles, partners = Tiles::partners;
  using Factor = std::uint32_t[row_tiles][partners / 16][4];

  struct Block : Base {
    using Base::Base, Base::first_row, Base::of_first, Base::of_second;
    using Scores = typename Base::Scores;

    /// False if only some rows meet a value that would spoil the gradients of others.
    KFORMER_DEVICE bool run() {
      if (!this->pass_partners(*this)) return false;
      this->store([](std::uint16_t* to, float x, float y) {
        *reinterpret_cast<std::uint32_t*>(to) = pack<type>(x, y);
      });
      return true;
    }

    KFORMER_DEVICE void multiply(Scores& result, SharedAddress own, SharedAddress partner, int) const {
      clear(result);
      const int lane = opaque_below<32>(this->lane);
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < features / 16; ++k) {
        std::uint32_t x[row_tiles][4];
        KFORMER_DEVICE_UNROLL
        for (int m = 0; m < row_tiles; ++m)
          load_matrices(x[m], own + Swizzled<features>::at(first_row(m) + lane % 16, 2 * k + lane / 16));
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < partners / 16; ++n) {
          std::uint32_t y[4];
          load_matrices(
              y, partner + Swizzled<features>::at(16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < row_tiles; ++m) {
            multiply_add<type>(result[m][2 * n], x[m], y[0], y[1]);
            multiply_add<type>(result[m][2 * n + 1], x[m], y[2], y[3]);
          }
        }
      }
    }

    /// 0 · NaN is not 0.
    KFORMER_DEVICE static bool spoils(const SharedOperands& partner) {
      return any_of_block((Tiles::first && not_finite(partner.first)) ||
                          (Tiles::second && not_finite(partner.second)));
    }
    KFORMER_DEVICE static bool not_finite(SharedAddress operand) {
      return copied_not_finite<type, partners, features, Base::threads>(operand);
    }

    template <class Meanwhile>
    KFORMER_DEVICE void add(const Scores& weight, const Scores& slope, const SharedOperands& partner,
                            Meanwhile meanwhile) {
      Factor of_weight, of_slope;
      if constexpr (Tiles::second) pack_factor(of_weight, weight);
      if constexpr (Tiles::first) pack_factor(of_slope, slope);
      meanwhile();
      if constexpr (Tiles::second) add_product(of_second, of_weight, partner.second);
      if constexpr (Tiles::first) add_product(of_first, of_slope, partner.first);
    }
    KFORMER_DEVICE static void pack_factor(Factor& factor, const Scores& x) {
      KFORMER_DEVICE_UNROLL
      for (int m = 0; m < row_tiles; ++m) {
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < partners / 8; ++n) {
          KFORMER_DEVICE_UNROLL
          for (int half = 0; half < 2; ++half)
            factor[m][n / 2][n % 2 * 2 + half] = pack<type>(x[m][n][2 * half], x[m][n][2 * half + 1]);
        }
      }
    }
    KFORMER_DEVICE void add_product(typename Base::template Sums<true>& sum, const Factor& factor,
                                    SharedAddress partner) const {
      KFORMER_DEVICE_UNROLL
      for (int k = 0; k < partners / 16; ++k) {
        const int lane = opaque_below<32>(this->lane);
        KFORMER_DEVICE_UNROLL
        for (int n = 0; n < features / 16; ++n) {
          std::uint32_t y[4];
          load_matrices_transposed(y, partner + Swizzled<features>::at(16 * k + lane % 16, 2 * n + lane / 16));
          KFORMER_DEVICE_UNROLL
          for (int m = 0; m < row_tiles; ++m) {
            multiply_add<type>(sum[m][2 * n], factor[m][k], y[0], y[1]);
            multiply_add<type>(sum[m][2 * n + 1], factor[m][k], y[2], y[3]);
          }
        }
      }
    }
  };
};

}  // namespace kformer::Impl::cuda
