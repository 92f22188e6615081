// SPDX-License-Identifier: MIT
#pragma once

#include <sstream>

#include "kformer/core/error.hpp"

namespace kformer::Impl {

/// The conditions on the options of a class.
struct Require {
  const char* class_name;

  /// \throws NotSupported with the words one after the other if `condition` is false
  template <class... Words>
  void operator()(bool condition, const Words&... words) const {
    if (condition) return;
    std::ostringstream text;
    text << "kformer::" << class_name << ": ";
    (text << ... << words);
    throw NotSupported(text.str());
  }
};

}  // namespace kformer::Impl
