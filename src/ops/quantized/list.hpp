// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/embedding/reference.hpp"
#include "ops/linear/reference.hpp"
#include "ops/quantized/host/entries.hpp"
#include "ops/quantized/kokkos.hpp"
#include "ops/quantized/kokkos_linear.hpp"
#include "ops/quantized/reference.hpp"

namespace kformer::Impl {

/// Calls `f` with the format and the storage type as constants.
template <class F>
void with_format_and_dtype(QuantizedFormat format, DType dtype, F f) {
  dispatch_dtype(dtype, [&]<class T>(std::type_identity<T> storage) {
    with_format(format, [&](auto constant) { f(constant, storage); });
  });
}

template <class Exec>
struct List<Dequantize, Exec> {
  using P = Dequantize;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    with_format_and_dtype(p.matrix.format, p.y.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      dequantize_rows_kokkos<format(), T>("kformer::dequantize[kokkos]", exec, p.matrix, nullptr, p.y);
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::dequantize[reference]",
                  [p] { write_tensor(reference::dequantize<double, double>(p.matrix), p.y); });
  }
};

template <class Exec>
struct List<Quantize, Exec> {
  using P = Quantize;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 1> all{
        {{"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry}}};
    return all;
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    with_format_and_dtype(p.matrix.format, p.x.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      quantize_kokkos<format(), T>(exec, p);
    });
  }
};

template <class Exec>
struct List<QuantizedLinearForward, Exec> {
  using P = QuantizedLinearForward;
  static KernelList<P, Exec> get() {
    using host::Isa;
    return simd_list<P, Exec, List, no_workspace<P>, host::QuantizedLinearEntry<Exec, Isa::avx512_vnni>,
                     host::QuantizedLinearEntry<Exec, Isa::avx512>, host::QuantizedLinearEntry<Exec, Isa::avx2>,
                     host::QuantizedLinearEntry<Exec, Isa::generic>>();
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    with_format_and_dtype(p.weight.format, p.x.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      if (p.options.activations == Activations::full)
        quantized_linear_kokkos<format(), Activations::full, T>(exec, p);
      else
        quantized_linear_kokkos<format(), Activations::int8, T>(exec, p);
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::quantized_linear_forward[reference]", [p] {
        auto x = read_tensor<double>(p.x);
        if (p.options.activations == Activations::int8)
          dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
            x = reference::int8_activations<compute_t<T>, double, double>(x, activation_group(p.weight.format));
          });
        write_tensor(
            reference::linear_forward<double, double>(x, reference::dequantize<double, double>(p.weight), {},
                                                      read_tensor<double>(p.residual), p.options.scale),
            p.y);
      });
  }
};

template <class Exec>
struct List<QuantizedEmbeddingForward, Exec> {
  using P = QuantizedEmbeddingForward;
  static KernelList<P, Exec> get() { return simd_list<P, Exec, List, no_workspace<P>>(); }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    with_format_and_dtype(p.weight.format, p.y.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      dequantize_rows_kokkos<format(), T>("kformer::quantized_embedding_forward[kokkos]", exec, p.weight,
                                          static_cast<const std::int32_t*>(p.ids.data), p.y);
    });
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    if constexpr (is_host_space<Exec>)
      run_on_host(exec, "kformer::quantized_embedding_forward[reference]", [p] {
        write_tensor(reference::embedding_forward(read_tensor<double>(p.ids),
                                                  reference::dequantize<double, double>(p.weight)),
                     p.y);
      });
  }
};

}  // namespace kformer::Impl
