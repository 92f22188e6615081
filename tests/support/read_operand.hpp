// SPDX-License-Identifier: MIT
#pragma once

#include "support/every_kernel.hpp"

/// \file
/// What an operand of a problem holds, which may be on a device.

namespace kformer::Testing {

/// None if the operand is absent.
template <class Real>
HostTensor<Real> read_operand(const TensorRef& x) {
  if (!x.present()) return {};
  std::int64_t last = 0;
  for (int r = 0; r < x.rank; ++r) last += (x.extent[r] - 1) * x.stride[r];
  const std::size_t bytes = x.size() > 0 ? static_cast<std::size_t>(last + 1) * size_of(x.dtype) : 0;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  const Kokkos::View<const std::byte*, Exec::memory_space, Unmanaged> there(
      static_cast<const std::byte*>(x.data), bytes);
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, there);
  TensorRef here = x;
  here.data = const_cast<std::byte*>(host.data());
  return kformer::Impl::read_tensor<Real>(here);
}

}  // namespace kformer::Testing
