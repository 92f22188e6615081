// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

/// \file
/// Reading the files of a tokenizer, with error texts.

namespace kformer::Impl::tokenizers {

/// \throws FileError "'tokenizer.json' is not a valid tokenizer: <reason>"
[[noreturn]] void refuse(const std::string& file, const std::string& reason);

/// \throws NotSupported "'tokenizer.json': <what> is not supported: <why>"
[[noreturn]] void unsupported(const std::string& file, const std::string& what, const std::string& why);

/// `text` in quotes, shortened and without control characters, for an error text.
std::string in_quotes(std::string_view text);

/// Bytes of the largest file of a tokenizer; published ones have up to 35 MB.
inline constexpr std::uintmax_t largest_file = std::uintmax_t{256} << 20;

/// The whole of a file.
/// \throws FileError if it cannot be read, is not a regular file, or is larger than `largest_file`
std::string read_whole(const std::filesystem::path& path);

}  // namespace kformer::Impl::tokenizers
