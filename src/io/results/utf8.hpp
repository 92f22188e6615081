// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace kformer::Impl {

/// `bytes` with everything that is not UTF-8, and NUL (which HDF5's strings cannot carry), replaced by U+FFFD:
/// one stray byte in a command line or a file name must not make the whole result file unreadable to Python.
std::string to_utf8(std::string_view bytes);

}  // namespace kformer::Impl
