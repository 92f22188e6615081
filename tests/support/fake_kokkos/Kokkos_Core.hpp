// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

/// \file
/// What the references and the rule of tolerance name of Kokkos, for programs that must not depend on it: no View,
/// no space and no parallel loop works here.

#if defined(__CUDACC__)
#define KOKKOS_FUNCTION __host__ __device__
#else
#define KOKKOS_FUNCTION
#endif
#define KOKKOS_INLINE_FUNCTION KOKKOS_FUNCTION inline

namespace Kokkos {

template <class To, class From>
KOKKOS_FUNCTION To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}
using std::fabs, std::floor, std::isfinite, std::max, std::min, std::round;

struct HostSpace {};
struct DefaultExecutionSpace {};
struct LayoutLeft {};
struct LayoutRight {};
struct LayoutStride {
  std::size_t dimension[8], stride[8];
};
inline constexpr unsigned Unmanaged = 1;
template <unsigned>
struct MemoryTraits;
template <class...>
class View;
template <class...>
struct TeamPolicy;
template <class, class>
struct SpaceAccessibility {
  static constexpr bool accessible = false;
};
template <class>
inline constexpr bool is_view_v = false;
template <class>
inline constexpr bool is_execution_space_v = false;
template <>
inline constexpr bool is_execution_space_v<DefaultExecutionSpace> = true;

namespace Experimental {
template <class T>
struct infinity {
  static constexpr T value = std::numeric_limits<T>::infinity();
};
template <class T>
inline constexpr T infinity_v = infinity<T>::value;
template <class T>
inline constexpr T quiet_NaN_v = std::numeric_limits<T>::quiet_NaN();
}  // namespace Experimental

}  // namespace Kokkos
