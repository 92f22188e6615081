// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "kformer/text/tokenizer.hpp"

namespace kformer::Impl::data {

/// Encodes a text in pieces. Tokenizers may put a space before a text; within one there must be none.
class TextEncoder {
 public:
  explicit TextEncoder(const Tokenizer& tokenizer);

  /// What precedes a piece.
  enum class After { nothing, control, text };

  /// Appends the tokens of `piece`, in which no special token is found.
  void append(std::string_view piece, After after, std::vector<std::int32_t>& ids) const;

  /// The token that `spelling` stands for, if it is a special one.
  std::optional<std::int32_t> control(std::string_view spelling) const;

  const Tokenizer& tokenizer() const { return *m_tokenizer; }

 private:
  bool puts_space_after(std::int32_t control) const;

  const Tokenizer* m_tokenizer;
  bool m_puts_space = false;           ///< before a text
  bool m_puts_space_after = false;     ///< after a special token
  std::vector<std::int32_t> m_anchor;  ///< the tokens of a text that never joins what follows
};

}  // namespace kformer::Impl::data
