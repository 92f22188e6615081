// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>

#include "kformer/core/tensor_ref.hpp"

namespace kformer {

/// Scratch memory a caller passes to a function that asks for it with its `_workspace_bytes` twin; its content
/// is undefined before and after. Made from any rank-1 View of bytes; aligned as Kokkos aligns allocations (64
/// bytes).
struct Workspace {
  void* data = nullptr;   ///< first byte, in a memory space the execution space can access
  std::size_t bytes = 0;  ///< how many there are

  /// No workspace: enough for functions whose `_workspace_bytes` is 0.
  Workspace() = default;
  /// The memory of `view`.
  template <ViewOf<1> V>
    requires(sizeof(typename V::value_type) == 1)
  Workspace(const V& view) : data(view.data()), bytes(view.size()) {}
};

}  // namespace kformer
