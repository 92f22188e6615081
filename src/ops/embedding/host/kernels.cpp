// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/embedding/host/gather.hpp"

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr EmbeddingKernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  return {embedding_forward<T>, embedding_backward<T>};
}
}  // namespace

template <Isa isa>
const EmbeddingKernels& embedding_kernels(DType storage) {
  using namespace simd::KFORMER_ISA;
  static constexpr EmbeddingKernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                             kernels_for<double>()};
  return all[static_cast<int>(storage)];
}

template const EmbeddingKernels& embedding_kernels<Isa::KFORMER_ISA>(DType);

}  // namespace kformer::Impl::host
