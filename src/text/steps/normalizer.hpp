// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/steps/splitting.hpp"

/// \file
/// The steps before a text is split; named as in tokenizer.json.

namespace kformer::Impl::tokenizers {

/// A step: maps a text to a text.
using NormalStep = std::function<std::string(std::string)>;

/// Unicode's normal form C, D, KC or KD (Unicode Standard Annex 15).
/// \param form "NFC", "NFD", "NFKC" or "NFKD"
/// \param file name of the file in error texts
///
/// Without ICU, form C supports only characters below U+0300, which are their own form C, and throws
/// NotSupported for any other; other forms throw now.
NormalStep unicode_form(const std::string& form, const std::string& file);
/// Prepends a text, unless the other is empty.
NormalStep prepend_text(std::string before);
/// Replaces what is found.
NormalStep replace_text(Finder finder, std::string by);

}  // namespace kformer::Impl::tokenizers
