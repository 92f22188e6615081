// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"
#include "kformer/core/stored_type.hpp"

/// \file
/// Elements on their way between a file and memory that a device can reach.

namespace kformer::Impl {

/// A float that becomes the same number of 16 bits as `value`: between two floats it is the one with an odd last bit, which
/// is no tie.
inline float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value) return nearest;
  auto bits = Kokkos::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return Kokkos::bit_cast<float>(bits | 1u);
}

/// A number, rounded once.
template <class T, class S>
T converted(S value) {
  if constexpr (std::is_same_v<S, double> && sizeof(T) == 2)
    return T(rounded_to_odd(value));
  else
    return T(static_cast<compute_t<T>>(static_cast<compute_t<S>>(value)));
}

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
                             to[i] = converted<T>(value);
                           });
      Kokkos::DefaultHostExecutionSpace().fence("kformer::load_weights");
    }
  });
}

}  // namespace kformer::Impl
