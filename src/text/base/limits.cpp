// SPDX-License-Identifier: MIT
#include "text/base/limits.hpp"

#include <string>

#include "kformer/core/error.hpp"

namespace kformer::Impl::tokenizers {

void require_encodable(std::string_view text) {
  if (text.size() > longest_text)
    throw NotSupported("kformer::Tokenizer::encode: the text has " + std::to_string(text.size()) +
                       " bytes, at most " + std::to_string(longest_text) + " can be encoded at once; split it");
}

void require_moderate_growth(std::size_t before, std::size_t now) {
  constexpr std::size_t most_growth = 64, always_allowed = std::size_t{1} << 16;
  if (now <= always_allowed || now / most_growth <= before) return;
  throw NotSupported("kformer::Tokenizer::encode: the tokenizer's normalizer expands " +
                     std::to_string(before) + " bytes to at least " + std::to_string(now) + "; the limit is " +
                     std::to_string(most_growth) + "-fold growth; the tokenizer file may be damaged");
}

}  // namespace kformer::Impl::tokenizers
