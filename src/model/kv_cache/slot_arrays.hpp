// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Arrays of slots for keys and values.

namespace kformer::Impl {

/// A View of memory that is held elsewhere.
template <class Data, class Exec>
using StridedView = Kokkos::View<Data, Kokkos::LayoutStride, typename Exec::memory_space,
                                 Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// By extents and strides.
template <class Data, class Exec, class U>
StridedView<Data, Exec> strided(U* data, std::initializer_list<std::int64_t> extents,
                                std::initializer_list<std::int64_t> strides) {
  Kokkos::LayoutStride layout;
  std::copy(extents.begin(), extents.end(), layout.dimension);
  std::copy(strides.begin(), strides.end(), layout.stride);
  return StridedView<Data, Exec>(data, layout);
}

/// Arrays of slots, each (slots, heads, features) and dense: the keys of layer l are array 2l, the values array
/// 2l + 1.
template <class Exec, class U>
class SlotArrays {
 public:
  SlotArrays() = default;
  SlotArrays(U* data, std::int64_t arrays, std::int64_t slots, std::int64_t heads, std::int64_t dim)
      : m_data(data), m_arrays(arrays), m_slots(slots), m_heads(heads), m_dim(dim) {}

  /// Slots [first, first + count) of an array: (count, heads, features).
  auto rows(std::int64_t array, std::int64_t first, std::int64_t count) const {
    return strided<U***, Exec>(at(array, first), {count, m_heads, m_dim}, {m_heads * m_dim, m_dim, 1});
  }
  /// An array: (slots, heads, features).
  auto rows(std::int64_t array) const { return rows(array, 0, m_slots); }
  /// As a batch of one: (1, count, heads, features).
  auto batch(std::int64_t array, std::int64_t first, std::int64_t count) const {
    return strided<U****, Exec>(at(array, first), {1, count, m_heads, m_dim},
                                {count * m_heads * m_dim, m_heads * m_dim, m_dim, 1});
  }
  /// The same slots of every `step`-th array from `array` on: (arrays, count, heads, features).
  auto across(std::int64_t array, std::int64_t step, std::int64_t first, std::int64_t count) const {
    return strided<U****, Exec>(at(array, first), {(m_arrays - array + step - 1) / step, count, m_heads, m_dim},
                                {step * m_slots * m_heads * m_dim, m_heads * m_dim, m_dim, 1});
  }
  /// The same slots of every array.
  auto across(std::int64_t first, std::int64_t count) const { return across(0, 1, first, count); }

 private:
  U* at(std::int64_t array, std::int64_t slot) const {
    return m_data + (array * m_slots + slot) * m_heads * m_dim;
  }

  U* m_data = nullptr;
  std::int64_t m_arrays = 0, m_slots = 0, m_heads = 0, m_dim = 0;
};

}  // namespace kformer::Impl
