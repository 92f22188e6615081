// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <string_view>

namespace kformer::Impl::tokenizers {

/// Bytes of the longest text that is split in one call: places in it are kept in 32 bits.
inline constexpr std::size_t longest_text = std::size_t{1} << 29;

/// \throws NotSupported if `text` is longer than that
void require_encodable(std::string_view text);

/// For steps that make a text longer, of which a file may have any number.
/// \param before bytes of the text as it was written
/// \param now    bytes of what it became
/// \throws NotSupported if no tokenizer of a published model needs so many
void require_moderate_growth(std::size_t before, std::size_t now);

}  // namespace kformer::Impl::tokenizers
