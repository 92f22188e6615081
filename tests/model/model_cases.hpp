// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "kformer/model/decoder_layer.hpp"

/// \file
/// Small language models for tests.

namespace kformer::Testing {

/// A model and the tokens it works on.
struct ModelCase {
  const char* name;
  LlamaConfig config;
  LayerShape shape;
};

inline LlamaConfig small_model() {
  return {.hidden_size = 40,
          .intermediate_size = 61,
          .num_attention_heads = 4,
          .num_key_value_heads = 2,
          .head_dim = 8,
          .num_hidden_layers = 3,
          .vocab_size = 75};
}

/// Small models of every family.
inline std::vector<ModelCase> model_cases() {
  const auto with = [](auto change) {
    LlamaConfig c = small_model();
    change(c);
    return c;
  };
  return {
      {"two sequences", small_model(), {2, 7}},
      {"sequences of one token", small_model(), {6, 1}},
      {"tied embeddings", with([](LlamaConfig& c) { c.tie_word_embeddings = true; }), {2, 7}},
      {"one layer, window",
       with([](LlamaConfig& c) {
         c.num_hidden_layers = 1;
         c.sliding_window = 3;
       }),
       {1, 17}},
      {"biases", with([](LlamaConfig& c) { c.attention_bias = c.tie_word_embeddings = true; }), {2, 5}},
      {"norms of heads", with([](LlamaConfig& c) { c.qk_norm = true; }), {2, 5}},
  };
}

}  // namespace kformer::Testing
