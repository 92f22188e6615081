// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "text/steps/splitting.hpp"

namespace kformer::Impl::tokenizers {

/// The meaning of `tokenizer.ggml.pre` of a GGUF file.
struct GgufSplit {
  std::vector<SplitStep> steps;  ///< up to the letters of bytes
  bool whole_words = false;      ///< words that are tokens are not merged
  bool adds_bos = false;         ///< unless the file says otherwise
};

/// \throws NotSupported for an unknown name
GgufSplit gguf_split(const std::string& pre, const std::string& file);

}  // namespace kformer::Impl::tokenizers
