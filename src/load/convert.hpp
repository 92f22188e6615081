// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstring>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/core/scalar.hpp"

/// \file
/// Elements on their way between a file and memory that a device can reach.

namespace kformer::Impl {

/// `count` elements of a stored type, somewhere in a mapped file, as T.
template <class T>
void convert(const std::string& type, const std::byte* from, std::size_t count, T* to) {
  const auto each = [&]<class S>(std::type_identity<S>) {
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
  };
  if (type == "F32") return each(std::type_identity<float>());
  if (type == "F64") return each(std::type_identity<double>());
  if (type == "F16") return each(std::type_identity<f16>());
  if (type == "BF16") return each(std::type_identity<bf16>());
  throw FileError("a weight of type " + type + " cannot be converted");
}

template <class Space>
using RawBytes = Kokkos::View<std::byte*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class To, class From>
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  Kokkos::deep_copy(RawBytes<To>(static_cast<std::byte*>(to), bytes),
                    RawBytes<From>(static_cast<std::byte*>(const_cast<void*>(from)), bytes));
}

}  // namespace kformer::Impl
