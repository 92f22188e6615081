// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <string_view>

namespace kformer::Impl::tokenizers {

/// Checks in a serialised SentencePiece model what the SentencePiece library takes for granted: the frame of its
/// fields, the lengths of its pieces, and that the search tree of its normalizer stays within itself.
/// \param model sentencepiece_model.proto, serialised
/// \param file  name of the file in error texts
/// \throws FileError saying what is wrong
void check_sentencepiece_model(std::string_view model, const std::string& file);

}  // namespace kformer::Impl::tokenizers
