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

}  // namespace kformer::Impl::tokenizers
