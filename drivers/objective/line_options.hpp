// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "decks/train/train_deck.hpp"
#include "kformer/io/model_table.hpp"
#include "kformer/text/tokenizer.hpp"

namespace kformer::drivers {

/// The options that all data of JSON lines take from a deck, a model and its tokenizer.
template <class Options>
Options line_options(const TrainDeck& deck, const LanguageModelTable& model, const Tokenizer& tokenizer,
                     const std::vector<std::filesystem::path>& files) {
  Options options;
  options.files = files;
  options.vocab_size = model.vocab_size;
  // Not every line has messages: a tokenizer without a template is refused where the first one comes.
  if (deck.data.chat_style) options.chat = chat_template_of(tokenizer, deck.data.chat_style);
  if (!model.bos_token_ids.empty()) options.bos = static_cast<std::int32_t>(model.bos_token_ids[0]);
  options.add_bos = deck.tokenizer.add_bos;
  return options;
}

}  // namespace kformer::drivers
