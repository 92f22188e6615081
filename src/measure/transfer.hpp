// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include "kformer/core/tensor_ref.hpp"
#include "measure/host_array.hpp"

namespace kformer::measure {

/// Copies a contiguous device tensor to the host, as double.
template <class Exec>
HostArray download(const TensorRef& ref) {
  HostArray array;
  for (int r = 0; r < ref.rank; ++r) array.shape.push_back(static_cast<std::size_t>(ref.extent[r]));
  array.values.resize(static_cast<std::size_t>(ref.size()));
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const Kokkos::View<const T*, typename Exec::memory_space, Unmanaged> device(static_cast<const T*>(ref.data),
                                                                                array.values.size());
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, device);
    for (std::size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = static_cast<double>(static_cast<compute_t<T>>(host(i)));
  });
  return array;
}

/// Copies host values, times a factor, into a contiguous device tensor, rounding to its type.
template <class Exec>
void upload(const HostArray& array, const TensorRef& ref, double factor = 1) {
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const Kokkos::View<T*, typename Exec::memory_space, Unmanaged> device(static_cast<T*>(ref.data),
                                                                          array.values.size());
    const auto host = Kokkos::create_mirror_view(Kokkos::WithoutInitializing, device);
    for (std::size_t i = 0; i < array.values.size(); ++i)
      host(i) = T(static_cast<compute_t<T>>(factor * array.values[i]));
    Kokkos::deep_copy(device, host);
  });
}

}  // namespace kformer::measure
