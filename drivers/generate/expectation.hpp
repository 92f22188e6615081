// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/generation.hpp"

namespace kformer::drivers {

/// Compares the text of tokens with the expected text, ignoring white space at both ends.
/// \returns a description of the first token that differs; nothing if the texts are equal
std::optional<std::string> difference_from(std::span<const TokenRecord> tokens, std::string_view expected);

/// Compares the ids of tokens with the expected ids.
/// \copydetails difference_from
std::optional<std::string> difference_from(std::span<const TokenRecord> tokens,
                                           const std::vector<std::int64_t>& expected);

}  // namespace kformer::drivers
