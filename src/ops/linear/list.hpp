// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/linear/host/amx/products.hpp"
#include "ops/linear/kokkos.hpp"
#include "ops/linear/reference.hpp"
#ifdef KFORMER_ENABLE_BLAS
#include "ops/linear/host_blas.hpp"
#endif
#ifdef KFORMER_ENABLE_KOKKOS_KERNELS
#include "ops/linear/kokkos_blas.hpp"
#endif

namespace kformer::Impl {

/// The lists of the three products: the library of the device, our own kernels on what this processor has, then
/// a BLAS. On the host the BLAS by tiles comes before KokkosBlas: it also takes 16-bit numbers and residuals, and
/// where the BLAS itself has one thread, KokkosBlas uses only that.
template <class P, class Exec>
struct ProductList {
  static KernelList<P, Exec> get() {
    using host::Isa;
    static constexpr std::array<Kernel<P, Exec>, 1> portable{
        {{"kokkos", never_rejects<P>, no_workspace<P>, kokkos}}};
    static constexpr auto all = join<P, Exec>(
        DeviceEntries<P, Exec>::all,
        host::amx_entries<host::LinearEntry<P, Exec, host::AmxProducts>, P, Exec>(),
        SimdEntries<Entry, Isa::avx512_bf16, Isa::avx512, Isa::avx2>::template on<P, Exec>(),
#ifdef KFORMER_ENABLE_BLAS
        host_blas_entries<P, Exec>(),
#endif
#ifdef KFORMER_ENABLE_KOKKOS_KERNELS
        kokkos_blas_entries<P, Exec>(),
#endif
        SimdEntries<Entry, Isa::generic>::template on<P, Exec>(), portable, reference_entries<P, Exec>());
    return by_speed_of_bf16_pairs<P, Exec>(all);
  }
  static void kokkos(const Exec& exec, const P& p, const Workspace&) {
    with_product(p, [&](const auto& q) { matmul(label<P>("kokkos"), exec, q); });
  }

 private:
  template <class E, host::Isa isa>
  using Entry = host::LinearEntry<P, E, host::SimdProducts<isa>>;
};

template <class Exec>
struct List<LinearForward, Exec> : ProductList<LinearForward, Exec> {
  static void reference(const LinearForward& p) {
    write_tensor(reference::linear_forward<double, double>(
                     read_tensor<double>(p.x), read_tensor<double>(p.weight), read_tensor<double>(p.bias),
                     read_tensor<double>(p.residual), p.options.scale),
                 p.y);
  }
};

template <class Exec>
struct List<LinearBackwardInput, Exec> : ProductList<LinearBackwardInput, Exec> {
  static void reference(const LinearBackwardInput& p) {
    write_tensor(reference::linear_backward_input<double, double>(read_tensor<double>(p.weight),
                                                                  read_tensor<double>(p.dy), p.options.scale),
                 p.dx);
  }
};

template <class Exec>
struct List<LinearBackwardWeight, Exec> : ProductList<LinearBackwardWeight, Exec> {
  static void reference(const LinearBackwardWeight& p) {
    accumulate_tensor(
        reference::linear_backward_weight(read_tensor<double>(p.x), read_tensor<double>(p.dy), p.options.scale),
        p.dweight);
  }
};

template <class Exec>
struct List<LinearBackwardBias, Exec> : UsualList<LinearBackwardBias, Exec> {
  static void kokkos(const Exec& exec, const LinearBackwardBias& p, const Workspace&) {
    dispatch_dtype(p.dy.dtype,
                   [&]<class T>(std::type_identity<T>) { linear_backward_bias_kokkos<T>(exec, p); });
  }
  static void reference(const LinearBackwardBias& p) {
    accumulate_tensor(reference::linear_backward_bias(read_tensor<double>(p.dy)), p.dbias);
  }
};

}  // namespace kformer::Impl
