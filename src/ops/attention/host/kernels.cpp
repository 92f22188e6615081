// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see src/CMakeLists.txt.
#include "ops/attention/host/backward.hpp"
#include "ops/attention/host/decode.hpp"
#include "ops/attention/host/forward.hpp"

#define KFORMER_JOIN_(a, b) a##b
#define KFORMER_JOIN(a, b) KFORMER_JOIN_(a, b)

namespace kformer {
enum class DType;  // f32, bf16, f16, f64: scalar.hpp belongs to Kokkos
}

namespace kformer::Impl::host {

namespace {
template <class T>
constexpr Kernels kernels_for() {
  using namespace simd::KFORMER_ISA;
  using C = Arithmetic<T>;
  return {panel_lanes<C>,
          attention_forward_rows<T>,
          ForwardTile<T>::scratch_bytes,
          attention_forward<T>,
          decode_rows,
          decode_part,
          DecodeTile<T>::scratch_bytes,
          attention_decode<T>,
          attention_combine<T>,
          backward_rows<C>,
          backward_keys,
          attention_delta<T>,
          BackwardTile<T>::scratch_bytes,
          attention_backward<T>};
}
}  // namespace

const Kernels& KFORMER_JOIN(kernels_, KFORMER_ISA)(DType storage) {
  using namespace simd::KFORMER_ISA;
#if defined(__AVX512BF16__)
  static constexpr Kernels bf16 = kernels_for<Bf16>();
  static_cast<void>(storage);
  return bf16;
#else
  static constexpr Kernels all[] = {kernels_for<float>(), kernels_for<Bf16>(), kernels_for<F16>(),
                                    kernels_for<double>()};
  return all[static_cast<int>(storage)];
#endif
}

}  // namespace kformer::Impl::host
