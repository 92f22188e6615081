// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace kformer::Impl {

/// `kformer::linear_forward[kernel]`: how tools see what an entry of the problem's list launches.
template <class P>
std::string label(const char* kernel) {
  std::string text = "kformer::";
  return text.append(P::function).append("[").append(kernel).append("]");
}

}  // namespace kformer::Impl
