// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/linear/host/entries.hpp"
#include "ops/linear/kokkos.hpp"
#include "ops/linear/reference.hpp"
#ifdef KFORMER_ENABLE_BLAS
#include "ops/linear/host_blas.hpp"
#endif
#ifdef KFORMER_ENABLE_KOKKOS_KERNELS
#include "ops/linear/kokkos_blas.hpp"
#endif

namespace kformer::Impl {

inline void run_reference(const LinearForward& p) {
  write_tensor(reference::linear_forward<double, double>(
                   read_tensor<double>(p.x), read_tensor<double>(p.weight), read_tensor<double>(p.bias),
                   read_tensor<double>(p.residual), p.options.scale),
               p.y);
}
inline void run_reference(const LinearBackwardInput& p) {
  write_tensor(reference::linear_backward_input<double, double>(read_tensor<double>(p.weight),
                                                                read_tensor<double>(p.dy), p.options.scale),
               p.dx);
}
inline void run_reference(const LinearBackwardWeight& p) {
  accumulate_tensor(
      reference::linear_backward_weight(read_tensor<double>(p.x), read_tensor<double>(p.dy), p.options.scale),
      p.dweight);
}
inline void run_reference(const LinearBackwardBias& p) {
  accumulate_tensor(reference::linear_backward_bias(read_tensor<double>(p.dy)), p.dbias);
}

template <class P, class Exec>
void reference_entry(const Exec& exec, const P& p, const Workspace&) {
  if constexpr (is_host_space<Exec>)
    run_on_host(exec, label<P>("reference").c_str(), [p] { run_reference(p); });
}

/// The lists of the three products: the library of the device, our own kernels on what this processor has, then
/// a BLAS. On the host the
/// BLAS by tiles comes before KokkosBlas: it also takes 16-bit numbers and residuals, and where the BLAS itself
/// has one thread, KokkosBlas uses only that.
template <class P, class Exec>
struct ProductList {
  static KernelList<P, Exec> get() {
    static constexpr auto all = join(
        DeviceEntries<P, Exec>::all, host::linear_entries<P, Exec, host::Isa::avx512_bf16>(),
        host::linear_entries<P, Exec, host::Isa::avx512>(), host::linear_entries<P, Exec, host::Isa::avx2>(),
#ifdef KFORMER_ENABLE_BLAS
        host_blas_entries<P, Exec>(),
#endif
#ifdef KFORMER_ENABLE_KOKKOS_KERNELS
        kokkos_blas_entries<P, Exec>(),
#endif
        host::linear_entries<P, Exec, host::Isa::generic>(),
        std::array<Kernel<P, Exec>, 2>{{
            {"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry},
            {"reference", never_rejects<P>, no_workspace<P>, reference_entry<P, Exec>},
        }});
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    with_product(p, [&](const auto& q) { matmul(label<P>("kokkos"), exec, q); });
  }

 private:
  template <class... Arrays>
  static constexpr auto join(const Arrays&... parts) {
    std::array<Kernel<P, Exec>, (std::tuple_size_v<Arrays> + ...)> all{};
    std::size_t n = 0;
    auto append = [&](const auto& part) {
      for (const auto& kernel : part) all[n++] = kernel;
    };
    (append(parts), ...);
    return all;
  }
};

template <class Exec>
struct List<LinearForward, Exec> : ProductList<LinearForward, Exec> {};
template <class Exec>
struct List<LinearBackwardInput, Exec> : ProductList<LinearBackwardInput, Exec> {};
template <class Exec>
struct List<LinearBackwardWeight, Exec> : ProductList<LinearBackwardWeight, Exec> {};

template <class Exec>
struct List<LinearBackwardBias, Exec> {
  using P = LinearBackwardBias;
  static KernelList<P, Exec> get() {
    static constexpr std::array<Kernel<P, Exec>, 2> all{{
        {"kokkos", never_rejects<P>, no_workspace<P>, kokkos_entry},
        {"reference", never_rejects<P>, no_workspace<P>, reference_entry<P, Exec>},
    }};
    return without_reference_on_device<Exec>(all);
  }
  static void kokkos_entry(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.dy.dtype,
                   [&]<class T>(std::type_identity<T>) { linear_backward_bias_kokkos<T>(exec, p); });
  }
};

}  // namespace kformer::Impl
