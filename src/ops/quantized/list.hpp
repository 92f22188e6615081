// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/embedding/reference.hpp"
#include "ops/linear/reference.hpp"
#include "ops/quantized/host/entries.hpp"
#include "ops/quantized/kokkos.hpp"
#include "ops/quantized/kokkos_linear.hpp"
#include "ops/quantized/kokkos_nf4.hpp"
#include "ops/quantized/kokkos_tiles.hpp"
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
struct List<Dequantize, Exec> : UsualList<Dequantize, Exec> {
  static void kokkos(const Exec& exec, const Dequantize& p, const Workspace&) {
    with_format_and_dtype(p.matrix.format, p.y.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      dequantize_rows_kokkos<format(), T>("kformer::dequantize[kokkos]", exec, p.matrix, nullptr, p.y);
    });
  }
  static void reference(const Dequantize& p) {
    write_tensor(reference::dequantize<double, double>(p.matrix), p.y);
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
      if constexpr (format() == QuantizedFormat::nf4)
        quantize_nf4_kokkos<T>(exec, p);
      else
        quantize_kokkos<format(), T>(exec, p);
    });
  }
};

template <class Exec>
struct List<QuantizedLinearForward, Exec>
    : UsualList<QuantizedLinearForward, Exec, Simd<host::QuantizedLinearEntry, host::Isa::avx512_vnni>> {
  static void kokkos(const Exec& exec, const QuantizedLinearForward& p, const Workspace&) {
    with_format_and_dtype(p.weight.format, p.x.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      const bool many = p.x.extent[0] > most_rows_without_tiles || p.options.batch_invariant;
      if (p.options.activations == Activations::full && many)
        quantized_linear_tiles_kokkos<format(), T>(exec, p);
      else if (p.options.activations == Activations::full)
        quantized_linear_kokkos<format(), Activations::full, T>(exec, p);
      else if constexpr (has_integer_codes(format()))
        quantized_linear_kokkos<format(), Activations::int8, T>(exec, p);
    });
  }
  static void reference(const QuantizedLinearForward& p) {
    auto x = read_tensor<double>(p.x);
    if (p.options.activations == Activations::int8)
      dispatch_dtype(p.x.dtype, [&]<class T>(std::type_identity<T>) {
        x = reference::int8_activations<compute_t<T>, double, double>(x, activation_group(p.weight.format));
      });
    const auto y =
        reference::linear_forward<double, double>(x, reference::dequantize<double, double>(p.weight), {},
                                                  read_tensor<double>(p.residual), p.options.scale);
    write_tensor(reference::with_terms(y, read_tensor<double>(p.adapter.left),
                                       read_tensor<double>(p.adapter.right), true, p.options.scale),
                 p.y);
  }
};

template <class Exec>
struct List<QuantizedLinearBackwardInput, Exec>
    : UsualList<QuantizedLinearBackwardInput, Exec,
                Simd<host::QuantizedBackwardInputEntry, host::Isa::avx512_vnni>> {
  static void kokkos(const Exec& exec, const QuantizedLinearBackwardInput& p, const Workspace&) {
    with_format_and_dtype(p.weight.format, p.dy.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      quantized_linear_backward_input_kokkos<format(), T>(exec, p);
    });
  }
  static void reference(const QuantizedLinearBackwardInput& p) {
    auto dx = reference::linear_backward_input<double, double>(reference::dequantize<double, double>(p.weight),
                                                               read_tensor<double>(p.dy), p.options.scale);
    dx = reference::with_terms(dx, read_tensor<double>(p.adapter.left), read_tensor<double>(p.adapter.right),
                               false, p.options.scale);
    const auto addend = read_tensor<double>(p.addend);
    if (addend.present())
      for (std::size_t i = 0; i < dx.values().size(); ++i) dx.values()[i] += addend.values()[i];
    write_tensor(dx, p.dx);
  }
};

template <class Exec>
struct List<QuantizedEmbeddingForward, Exec> : UsualList<QuantizedEmbeddingForward, Exec> {
  static void kokkos(const Exec& exec, const QuantizedEmbeddingForward& p, const Workspace&) {
    with_format_and_dtype(p.weight.format, p.y.dtype, [&]<class T>(auto format, std::type_identity<T>) {
      dequantize_rows_kokkos<format(), T>("kformer::quantized_embedding_forward[kokkos]", exec, p.weight,
                                          static_cast<const std::int32_t*>(p.ids.data), p.y);
    });
  }
  static void reference(const QuantizedEmbeddingForward& p) {
    write_tensor(reference::embedding_forward(read_tensor<double>(p.ids),
                                              reference::dequantize<double, double>(p.weight)),
                 p.y);
  }
};

}  // namespace kformer::Impl
