// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// Scratch memory a caller passes to a function, as many bytes as its `_workspace_bytes` twin says; its content
/// is undefined before and after. Made from any rank-1 View of bytes that begins at a multiple of `alignment`. Others are
/// refused, even where no byte is needed, so that a call does not depend on the kernel that is chosen.
struct Workspace {
  /// Of `data`, in bytes. What Kokkos allocates is aligned like this.
  static constexpr std::size_t alignment = 64;

  void* data = nullptr;   ///< first byte, in a memory space the execution space can access
  std::size_t bytes = 0;  ///< how many there are

  /// No workspace: enough for functions whose `_workspace_bytes` is 0.
  Workspace() = default;
  /// The memory of `view`. Without an address it has none.
  template <ViewOf<1> V>
  Workspace(const V& view) {
    using value_type = typename V::value_type;
    constexpr bool holds_bytes = sizeof(value_type) == 1 && !std::is_const_v<value_type>;
    static_assert(holds_bytes, "kformer: a workspace is a rank-1 View of bytes (std::byte or char), not const");
    if constexpr (holds_bytes) {
      data = view.data();
      bytes = view.size();
    }
  }

  /// Whether it has `needed` bytes and is aligned.
  bool suffices(std::size_t needed) const {
    return bytes >= needed && reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
  }
};

}  // namespace kformer
