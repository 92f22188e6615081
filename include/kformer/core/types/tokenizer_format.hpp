// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// Where a vocabulary comes from.
enum class TokenizerFormat {
  automatic,      ///< detected from the path
  sentencepiece,  ///< a `tokenizer.model`
  hf,             ///< a `tokenizer.json`, or the folder that holds one
  gguf,           ///< the metadata of a GGUF file
  byte            ///< one token per byte; needs no file
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 5> names_of<TokenizerFormat> = {"auto", "sentencepiece", "hf",
                                                                              "gguf", "byte"};

}  // namespace kformer
