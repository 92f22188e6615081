// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kformer/memory/ledger.hpp"

namespace kformer::drivers {

/// Places unmanaged Views one after another in one block of a ledger.
template <class MemorySpace>
class Arena {
 public:
  /// Makes room for `view`, which must outlive `allocate`.
  template <class V, class... Extents>
  void add(V& view, Extents... extents) {
    using T = typename V::non_const_value_type;
    const std::size_t offset = m_layout.reserve<T>((std::int64_t(extents) * ... * 1));
    m_bind.push_back([&view, offset, extents...](const MemoryBlock<MemorySpace>& block) {
      view = V(block.template at<T>(offset), static_cast<std::size_t>(extents)...);
    });
  }

  /// Allocates the block for work on `exec` and sets the Views; they live as long as the block.
  template <class Exec>
  MemoryBlock<MemorySpace> allocate(const Exec& exec, Ledger& ledger, MemoryClass memory_class,
                                    const std::string& label) {
    auto block = ledger.allocate(exec, memory_class, label, m_layout.bytes());
    for (const auto& bind : m_bind) bind(block);
    return block;
  }

 private:
  MemoryLayout m_layout;
  std::vector<std::function<void(const MemoryBlock<MemorySpace>&)>> m_bind;
};

}  // namespace kformer::drivers
