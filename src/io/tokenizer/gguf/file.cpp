// SPDX-License-Identifier: MIT
#include "io/tokenizer/file.hpp"
#include "io/tokenizer/formats.hpp"

namespace kformer::Impl::tokenizers {

std::unique_ptr<const Tokenizer> open_gguf(const std::filesystem::path& path) {
  unsupported(path.string(), "the format gguf", "not yet");
}

}  // namespace kformer::Impl::tokenizers
