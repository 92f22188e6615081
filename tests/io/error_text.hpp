// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/error.hpp"

namespace kformer::Testing {

/// The text of the FileError that `f` throws, or "no error".
template <class F>
std::string file_error(F&& f) {
  try {
    f();
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace kformer::Testing
