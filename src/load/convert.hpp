// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstring>
#include <string>
#include <type_traits>

#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"
#include "kformer/core/stored_type.hpp"

/// \file
/// Elements on their way between a file and memory that a device can reach.

namespace kformer::Impl {

/// `count` numbers of a stored type, somewhere in a mapped file, as T.
template <class T>
void convert(const StoredType& type, const std::byte* from, std::size_t count, T* to) {
  const auto dtype = dtype_of_numbers(type);
  if (!dtype || !is_float(*dtype))
    throw FileError("a weight of type " + to_string(type) + " cannot be converted");
  dispatch_dtype(*dtype, [&]<class S>(std::type_identity<S>) {
    if constexpr (std::is_same_v<S, T>) {
      std::memcpy(to, from, count * sizeof(T));
    } else {
      Kokkos::parallel_for("kformer::load_weights[convert]",
                           Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, count),
                           [=](std::size_t i) {
                             S value;
                             std::memcpy(&value, from + i * sizeof(S), sizeof(S));
                             to[i] = T(static_cast<compute_t<T>>(static_cast<compute_t<S>>(value)));
                           });
      Kokkos::DefaultHostExecutionSpace().fence("kformer::load_weights");
    }
  });
}

}  // namespace kformer::Impl
