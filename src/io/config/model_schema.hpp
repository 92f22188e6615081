// SPDX-License-Identifier: MIT
#pragma once

#include "io/schema/key.hpp"
#include "kformer/io/model_table.hpp"

/// \file
/// The keys of a model in config.json files and in decks.

namespace kformer::Impl::schema {

/// The most features of a token, and of all query heads together. Numbers of parameters and of operations fit in 64 bits then.
inline constexpr double most_features = 1 << 24;

template <class V>
void describe(V& v, RopeScaling& t) {
  v.key({.name = "rope_type", .help = "scaling rule; with `none` the other keys have no effect"}, t.rope_type);
  v.key({.name = "factor",
         .help = "low frequencies are divided by this",
         .range = {.min = 1, .max = most_in_float}},
        t.factor);
  v.key({.name = "low_freq_factor",
         .help = "wavelengths above `original_max_position_embeddings` / this are fully scaled",
         .range = {.min = 0, .max = most_in_float, .above = true}},
        t.low_freq_factor);
  v.key({.name = "high_freq_factor",
         .help =
             "wavelengths below `original_max_position_embeddings` / this are kept; in between the scaling is "
             "interpolated",
         .range = {.min = 0, .max = most_in_float, .above = true}},
        t.high_freq_factor);
  v.key({.name = "original_max_position_embeddings",
         .help = "context length of the original training",
         .range = {.min = 1, .max = 1 << 30},
         .unit = "tokens"},
        t.original_max_position_embeddings);
}

template <class V>
void describe(V& v, ModelTable& t) {
  constexpr const char* needed = "required, or from `config` or [tensors]";
  constexpr double most_heads = 1 << 16;
  v.key({.name = "config",
         .help = "published config.json, read first; keys of this table override it, and its other keys are "
                 "ignored",
         .default_text = "none",
         .consumed = true},
        t.config);
  v.key({.name = "model_type", .help = "model family"}, t.model_type);
  v.key({.name = "hidden_size",
         .help = "features per token",
         .range = {.min = 1, .max = most_features},
         .default_text = needed},
        t.hidden_size);
  v.key({.name = "num_attention_heads",
         .help = "query heads",
         .range = {.min = 1, .max = most_heads},
         .default_text = needed},
        t.num_attention_heads);
  v.key({.name = "num_key_value_heads",
         .help = "key and value heads; divides the query heads",
         .range = {.min = 0, .max = most_heads},
         .default_text = "0 = `num_attention_heads`"},
        t.num_key_value_heads);
  v.key({.name = "head_dim",
         .help = "features per head, even",
         .range = {.min = 0, .max = most_features},
         .default_text = "0 = `hidden_size / num_attention_heads`"},
        t.head_dim);
  v.key({.name = "intermediate_size",
         .help = "features inside the MLP",
         .range = {.min = 1, .max = most_features},
         .default_text = needed},
        t.intermediate_size);
  v.key({.name = "rms_norm_eps", .help = "added to the mean square", .range = {.min = 0, .max = most_in_float}},
        t.rms_norm_eps);
  v.key({.name = "hidden_act", .help = "activation of the gated MLP"}, t.hidden_act);
  v.key({.name = "rope_theta",
         .help = "base of the RoPE frequencies",
         .range = {.min = 0, .max = most_in_float, .above = true}},
        t.rope.theta);
  v.table(
      {.name = "rope_scaling", .help = "Scaling of the RoPE frequencies; the defaults are those of Llama 3.1."},
      t.rope.scaling);
  v.key({.name = "attention_bias",
         .help = "biases on the q, k and v projections; needs `model_type = \"qwen2\"`"},
        t.attention_bias);
  v.key({.name = "sliding_window",
         .help = "keys that a query sees, including its own; 0 = all up to its own",
         .range = {.min = 0, .max = 1 << 30},
         .unit = "tokens"},
        t.sliding_window);
}

/// \param needed other sources of a required key besides this table; null: none
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

}  // namespace kformer::Impl::schema
