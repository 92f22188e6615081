// SPDX-License-Identifier: MIT
#pragma once

#include <type_traits>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// The Views of a call as operands: every check that a compiler can make, with one sentence each.

namespace kformer::Impl {

/// Every View must live where `Exec` can reach it.
template <class Exec, class... V>
inline constexpr bool all_accessible =
    (Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible && ...);

template <class V, bool is_scalar = Scalar<typename V::value_type>>
struct ScalarOf {
  using type = typename V::non_const_value_type;
};
template <class V>
struct ScalarOf<V, false> {
  using type = float;
  static_assert(Scalar<typename V::value_type>,
                "kformer: this View must hold float, double, kformer::bf16 or kformer::f16");
};

/// The storage type T of a function, which is that of its operand `V`.
template <class V>
using scalar_t = typename ScalarOf<V>::type;

/// Refuses an output of const values.
template <AnyView V>
consteval void require_writable() {
  static_assert(!std::is_const_v<typename V::value_type>,
                "kformer: an output must be a View of values that are not const");
}

/// An operand that is read: a View of T, of one of these ranks. Plans have Views without an address, which `call`
/// refuses.
template <class Exec, class T, int... ranks, class V>
TensorRef input(const V& view) {
  constexpr bool accessible = all_accessible<Exec, V>;
  constexpr bool right_rank = ((V::rank() == ranks) || ...);
  constexpr bool right_type = std::is_same_v<typename V::non_const_value_type, T>;
  static_assert(accessible, "kformer: every View must be accessible from the execution space");
  static_assert(right_rank,
                "kformer: this View has the wrong rank; the function's documentation has the shapes");
  static_assert(right_type,
                "kformer: this View has the wrong storage type; all operands hold the same T, and the "
                "function's documentation says which hold compute_t<T>, int32 or uint8 instead");
  static_assert(!is_column_major<V>,
                "kformer: a LayoutLeft View is not row-major; pass kformer::as_row_major(view), whose extents "
                "are those of the View in reverse order");
  if constexpr (accessible && right_rank && right_type)
    return tensor_ref(view);
  else
    return {};
}

/// An operand that is written.
template <class Exec, class T, int... ranks, class V>
TensorRef output(const V& view) {
  require_writable<V>();
  return input<Exec, T, ranks...>(view);
}

}  // namespace kformer::Impl
