// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/error.hpp"

namespace kformer::Testing {

/// The text of the E that `f` throws, or "no error".
template <class E = Error, class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}

/// The same of a FileError.
template <class F>
std::string file_error(F&& f) {
  return error_text<FileError>(f);
}

}  // namespace kformer::Testing
