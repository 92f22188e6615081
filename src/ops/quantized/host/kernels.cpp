// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/quantized/host/int8_panels.hpp"
#include "ops/quantized/host/panels.hpp"

namespace kformer::Impl::host {

namespace {
template <class T, QuantizedFormat kind>
constexpr QuantizedKernels kernels_of() {
  using namespace simd::KFORMER_ISA;
  QuantizedDots int8{}, int8_panels{};
  if constexpr (!Blocks<kind>::table) int8 = {int8_scratch<kind>, int8_tile<T, kind>};
  if constexpr (has_int8_panels<kind>) int8_panels = {int8_panel_scratch, int8_panel_tile<T, kind>};
  return {{dot_scratch<T, kind>, dot_tile<T, kind>},
          {panel_cols<T>, most_panels<T>, LinearTile<T, QuantizedRight<kind>>::scratch_bytes,
           quantized_tile<T, QuantizedRight<kind>>, nullptr},
          int8,
          int8_panels,
          {panel_cols<T>, most_panels<T>, LinearTile<T, QuantizedAcross<kind>>::scratch_bytes,
           quantized_tile<T, QuantizedAcross<kind>>, nullptr}};
}
template <class T>
struct KernelsOf {
  QuantizedKernels of[6] = {kernels_of<T, QuantizedFormat::q8_0>(),  kernels_of<T, QuantizedFormat::q4_0>(),
                            kernels_of<T, QuantizedFormat::q4_1>(),  kernels_of<T, QuantizedFormat::tq2_0>(),
                            kernels_of<T, QuantizedFormat::tq1_0>(), kernels_of<T, QuantizedFormat::nf4>()};
};
}  // namespace

template <Isa isa>
const QuantizedKernels& quantized_kernels(DType storage, QuantizedFormat kind) {
  using namespace simd::KFORMER_ISA;
  static constexpr KernelsOf<float> f32;
  static constexpr KernelsOf<Bf16> bf16;
  static constexpr KernelsOf<F16> f16;
  const QuantizedKernels* const all[] = {f32.of, bf16.of, f16.of};
  return all[static_cast<int>(storage)][static_cast<int>(kind)];
}

template const QuantizedKernels& quantized_kernels<Isa::KFORMER_ISA>(DType, QuantizedFormat);

}  // namespace kformer::Impl::host
