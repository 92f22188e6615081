// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <memory>

#include "kformer/text/tokenizer.hpp"

/// \file
/// What `open_tokenizer` chooses from.

namespace kformer::Impl::tokenizers {

std::unique_ptr<const Tokenizer> open_sentencepiece(const std::filesystem::path& path);
std::unique_ptr<const Tokenizer> open_hf(const std::filesystem::path& path);
std::unique_ptr<const Tokenizer> open_gguf(const std::filesystem::path& path);
std::unique_ptr<const Tokenizer> make_byte();

}  // namespace kformer::Impl::tokenizers
