// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "kformer/core/error.hpp"

namespace kformer::Impl {

/// A member that notes when its object is moved from. The memory then belongs to the new object, and the Views
/// of the old one may point to nothing.
class MoveGuard {
 public:
  MoveGuard() = default;
  MoveGuard(MoveGuard&& other) noexcept : m_here(std::exchange(other.m_here, false)) {}
  MoveGuard& operator=(MoveGuard&& other) noexcept {
    m_here = std::exchange(other.m_here, false);
    return *this;
  }
  MoveGuard(const MoveGuard&) = delete;
  MoveGuard& operator=(const MoveGuard&) = delete;
  ~MoveGuard() = default;

  /// \param type     the name of the object's class
  /// \param function the member that was called
  /// \throws NotSupported if the object was moved from
  void require(std::string_view type, std::string_view function) const {
    if (!m_here)
      throw NotSupported("kformer::" + std::string(type) + "::" + std::string(function) +
                         ": the object was moved from and has no memory; use the one it was moved to");
  }

 private:
  bool m_here = true;
};

}  // namespace kformer::Impl
