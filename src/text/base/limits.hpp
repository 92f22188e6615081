// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

namespace kformer::Impl::tokenizers {

/// Bytes of the longest text that is split in one call: places in it are kept in 32 bits.
inline constexpr std::size_t longest_text = std::size_t{1} << 29;

/// \throws NotSupported if `text` is longer than that
void require_encodable(std::string_view text);

}  // namespace kformer::Impl::tokenizers
