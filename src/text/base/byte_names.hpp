// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <string_view>

/// \file
/// Bytes as vocabularies spell them.

namespace kformer::Impl::tokenizers {

/// `<0x0A>`: how vocabularies with byte fallback spell a byte.
std::string name_of_byte(unsigned char byte);

/// The byte that is spelled so.
std::optional<unsigned char> named_byte(std::string_view name);

/// The printable character that byte-level vocabularies (Radford et al., Language Models are Unsupervised
/// Multitask Learners, 2019, section 2.2) have for a byte: itself where it prints in Latin-1, else one from
/// U+0100 on.
std::string_view letter_of_byte(unsigned char byte);

/// `bytes`, each as its letter.
std::string letters_of_bytes(std::string_view bytes);

/// The bytes whose letters these are, or nothing if one is not the letter of a byte.
std::optional<std::string> bytes_of_letters(std::string_view letters);

}  // namespace kformer::Impl::tokenizers
