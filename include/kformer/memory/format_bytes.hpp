// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string>

namespace kformer {

/// `bytes` in words: `1.50 GiB`.
std::string format_bytes(std::size_t bytes);

}  // namespace kformer
