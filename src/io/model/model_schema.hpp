// SPDX-License-Identifier: MIT
#pragma once

#include "io/deck/layer_schema.hpp"

/// \file
/// The keys of a whole model in config.json files, besides those of its layers.

namespace kformer::Impl::decks {

/// \param needed where a key that must be known may come from besides this table; null: nowhere
template <class V>
void describe_model(V& v, LanguageModelTable& t, const char* needed = nullptr) {
  constexpr double most_tokens = 1 << 30;
  const bool required = needed == nullptr;
  const char* default_text = required ? "" : needed;
  v.key({.name = "num_hidden_layers",
         .help = "layers",
         .range = {.min = 1, .max = 1 << 12},
         .default_text = default_text,
         .required = required},
        t.num_hidden_layers);
  v.key({.name = "vocab_size",
         .help = "rows of the token embedding",
         .range = {.min = 1, .max = most_tokens},
         .default_text = default_text,
         .required = required},
        t.vocab_size);
  v.key({.name = "max_position_embeddings",
         .help = "context length of training",
         .range = {.min = 1, .max = most_tokens},
         .default_text = default_text,
         .required = required},
        t.max_position_embeddings);
  v.key({.name = "tie_word_embeddings", .help = "the embedding is also the output matrix"},
        t.tie_word_embeddings);
  v.key({.name = "bos_token_id",
         .help = "token at the beginning of a text",
         .range = {.min = 0, .max = most_tokens},
         .default_text = "none"},
        t.bos_token_ids);
  v.key({.name = "eos_token_id",
         .help = "tokens that end a text",
         .range = {.min = 0, .max = most_tokens},
         .default_text = "none"},
        t.eos_token_ids);
}

}  // namespace kformer::Impl::decks
