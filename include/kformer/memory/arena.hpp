// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "kformer/memory/ledger.hpp"

/// \file
/// Several Views in one booked block of memory.

namespace kformer {

/// Places unmanaged Views one after another in one block of a ledger:
///
///     Arena<Space> arena;
///     arena.add(m_x, rows, hidden);
///     arena.add(m_statistics, rows);
///     m_block = arena.allocate(ledger, MemoryClass::activations, "my arrays");
///
/// Each View starts at a multiple of 64 bytes. The Views passed to `add` must outlive `allocate`; their
/// memory lives as long as the block.
template <class MemorySpace>
class Arena {
 public:
  /// Makes room for `view` with these extents: one per rank, slowest first.
  /// \throws OutOfMemory if the bytes do not fit in 64 bits
  template <class V, class... Extents>
  void add(V& view, Extents... extents) {
    static_assert(V::rank() == sizeof...(Extents), "kformer::Arena::add: give one extent per rank of the View");
    using T = typename V::non_const_value_type;
    const std::size_t offset = m_layout.reserve<T>(checked_product({static_cast<std::int64_t>(extents)...}));
    m_bind.push_back([&view, offset, extents...](const MemoryBlock<MemorySpace>& block) {
      T* data = block.template at<T>(offset);
      if constexpr (std::is_same_v<typename V::array_layout, Kokkos::LayoutStride>) {
        view =
            Kokkos::View<typename V::data_type, Kokkos::LayoutRight, MemorySpace,
                         Kokkos::MemoryTraits<Kokkos::Unmanaged>>(data, static_cast<std::size_t>(extents)...);
      } else {
        view = V(data, static_cast<std::size_t>(extents)...);
      }
    });
  }

  /// Calls `places...`, each of which adds Views. Views that different calls add share memory: they are never
  /// used at the same time.
  template <class... Places>
  void overlap(const Places&... places) {
    const std::size_t begin = m_layout.next();
    std::size_t end = begin;
    const auto place = [&](const auto& add_views) {
      m_layout.rewind(begin);
      add_views();
      end = std::max(end, m_layout.next());
    };
    (place(places), ...);
    m_layout.rewind(end);
  }

  /// Bytes the block needs.
  std::size_t bytes() const { return m_layout.bytes(); }

  /// Sets the Views to their places in `block`, which has at least `bytes()` bytes.
  void bind(const MemoryBlock<MemorySpace>& block) const {
    for (const auto& set : m_bind) set(block);
  }

  /// Allocates the block for work on any instance and sets the Views.
  /// \throws OutOfMemory with the ledger
  MemoryBlock<MemorySpace> allocate(Ledger& ledger, MemoryClass memory_class, const std::string& label) const {
    auto block = ledger.allocate<MemorySpace>(memory_class, label, bytes());
    bind(block);
    return block;
  }
  /// Allocates the block for work that is launched on `exec`, as `Ledger::allocate` with an instance, and sets
  /// the Views.
  /// \throws OutOfMemory with the ledger
  template <class Exec>
  MemoryBlock<MemorySpace> allocate(const Exec& exec, Ledger& ledger, MemoryClass memory_class,
                                    const std::string& label) const {
    auto block = ledger.allocate(exec, memory_class, label, bytes());
    bind(block);
    return block;
  }

 private:
  MemoryLayout m_layout;
  std::vector<std::function<void(const MemoryBlock<MemorySpace>&)>> m_bind;
};

}  // namespace kformer
