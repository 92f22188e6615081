// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "support/emulated_amx/kernels.hpp"

#include "ops/linear/host/amx/product.hpp"
#include "support/emulated_amx/tiles.hpp"

namespace kformer::Impl::simd::KFORMER_ISA {
namespace {

/// As `TileRegisters` of ops/linear/host/amx/instructions.hpp.
struct EmulatedTiles {
  static void configure(const host::TileConfiguration& all) { Testing::emulated_amx::ldtilecfg(all); }
  static void release() { Testing::emulated_amx::tilerelease(); }
  template <int tile>
  static void zero() {
    Testing::emulated_amx::tilezero(tile);
  }
  template <int tile>
  static void load(const void* from, std::int64_t stride) {
    Testing::emulated_amx::tileloadd(tile, from, stride);
  }
  template <int tile>
  static void store(void* to, std::int64_t stride) {
    Testing::emulated_amx::tilestored(tile, to, stride);
  }
  template <int sum, int left, int right>
  static void multiply_bf16() {
    Testing::emulated_amx::tdpbf16ps(sum, left, right);
  }
};

}  // namespace
}  // namespace kformer::Impl::simd::KFORMER_ISA

namespace kformer::Testing::emulated_amx {

template <kformer::Impl::host::Isa isa>
const kformer::Impl::host::LinearKernels& linear_kernels() {
  using namespace kformer::Impl::simd::KFORMER_ISA;
  static constexpr kformer::Impl::host::LinearKernels bf16 = amx_kernels<EmulatedTiles>();
  return bf16;
}

template const kformer::Impl::host::LinearKernels& linear_kernels<kformer::Impl::host::Isa::KFORMER_ISA>();

}  // namespace kformer::Testing::emulated_amx
