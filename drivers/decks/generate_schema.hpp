// SPDX-License-Identifier: MIT
#pragma once

#include "decks/engine/common_tables.hpp"
#include "decks/generate_deck.hpp"

/// \file
/// The tables of kind "generate".

namespace kformer::Impl::schema {

/// The greatest number of tokens that a deck may name.
constexpr double most_tokens = 1 << 30;

template <class V>
void describe(V& v, WeightsTable& t) {
  v.key({.name = "format", .help = "how the weights are stored; `auto` looks at the path"}, t.format);
  v.key({.name = "path",
         .help = "a folder with `config.json` and safetensors files, a safetensors or GGUF file, or a packed "
                 "checkpoint; relative to the deck",
         .required = true},
        t.path);
  v.key({.name = "keep_quantized",
         .help = "quantised weights stay quantised in products; `false` expands them when they are loaded"},
        t.keep_quantized);
}

template <class V>
void describe(V& v, TokenizerTable& t) {
  v.key({.name = "format",
         .help = "how the tokenizer is stored; `auto` takes `tokenizer.model` or `tokenizer.json` beside the "
                 "weights or, of a GGUF file, the vocabulary inside; with `byte` every byte is a token"},
        t.format);
  v.key({.name = "path", .help = "its file, relative to the deck", .default_text = "beside the weights"},
        t.path);
  v.key({.name = "add_bos",
         .help = "whether the beginning-of-text token is put before a prompt",
         .default_text = "as the tokenizer says"},
        t.add_bos);
}

template <class V>
void describe(V& v, SamplingTable& t) {
  v.key({.name = "temperature",
         .help = "logits are divided by this; 0 takes the most likely token",
         .range = {.min = 0}},
        t.temperature);
  v.key({.name = "top_k",
         .help = "keep this many of the most likely tokens, 0 = all",
         .range = {.min = 0, .max = most_tokens}},
        t.top_k);
  v.key({.name = "top_p",
         .help = "keep the fewest of the most likely tokens that together have this probability, 1 = all",
         .range = {.min = 0, .max = 1, .above = true}},
        t.top_p);
  v.key({.name = "min_p",
         .help = "keep tokens that have at least this share of the greatest probability, 0 = all",
         .range = {.min = 0, .max = 1}},
        t.min_p);
  v.key({.name = "repetition_penalty",
         .help = "the logit of a token that was there before is divided by this if positive, else multiplied; "
                 "1 = no penalty",
         .range = {.min = 0, .above = true}},
        t.repetition_penalty);
  v.key({.name = "repetition_window",
         .help = "how far back `before` reaches, 0 = to the first token",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.repetition_window);
  v.key({.name = "seed",
         .help = "seed of the draws; each row of a batch draws its own",
         .range = {.min = 0},
         .default_text = "`run.seed`"},
        t.seed);
}

/// Its keys stand in the table that holds it.
template <class V>
void describe(V& v, KvCacheTable& t) {
  v.key({.name = "page_tokens",
         .help = "of `paged`: tokens of a page",
         .range = {.min = 1, .max = 1 << 16},
         .unit = "tokens"},
        t.page_tokens);
  v.key({.name = "window",
         .help = "of `window`, which needs it: the last tokens that are kept",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.window);
  v.key({.name = "sinks",
         .help = "of `window`: the first tokens, kept besides",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.sinks);
  v.key({.name = "budget",
         .help = "of `heavy_hitters`, which needs it: tokens that are kept",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.budget);
  v.key({.name = "recent",
         .help = "of `heavy_hitters`: how many of these are the last ones; the others are those that were "
                 "attended to most",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens",
         .default_text = "half of `budget`"},
        t.recent);
}

inline Key prefill_chunk_key() {
  return {.name = "prefill_chunk",
          .help = "prompt tokens of one step, 0 = the whole prompt",
          .range = {.min = 0, .max = most_tokens},
          .unit = "tokens"};
}

template <class V>
void describe(V& v, GenerateTable& t) {
  v.key({.name = "execution_space",
         .help = "where to run: `\"default\"` is the default space of the build",
         .choices = {"default", "serial", "openmp", "threads", "cuda", "hip", "sycl"}},
        t.execution_space);
  v.key({.name = "dtype",
         .help = "type of activations, KV cache and weights that are not quantised",
         .choices = {"f32", "bf16", "f16", "f64"}},
        t.dtype);
  v.key({.name = "activations",
         .help = "operands of products with quantised weights: as `dtype` says, or rounded to 8 bits"},
        t.activations);
  v.key({.name = "max_new_tokens",
         .help = "a sequence ends after so many tokens; 0 = the prompt alone",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.max_new_tokens);
  v.key({.name = "batch",
         .help = "sequences that start with each prompt and run together",
         .range = {.min = 1, .max = 1 << 16}},
        t.batch);
  v.key({.name = "kv_cache",
         .help = "what is kept of keys and values: all (`contiguous`, `paged`, `int8`), some (`window`, "
                 "`heavy_hitters`), or nothing: `none` computes everything anew for each token"},
        t.kv_cache);
  describe(v, t.cache);
  v.key(prefill_chunk_key(), t.prefill_chunk);
  v.key({.name = "max_seq_len",
         .help = "a sequence has at most so many tokens, 0 = as many as prompt and new tokens need",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.max_seq_len);
  v.key({.name = "share_prefix", .help = "compute a prompt once for all sequences that start with it"},
        t.share_prefix);
  v.key({.name = "stop_at_eos", .help = "end a sequence after an end-of-text token"}, t.stop_at_eos);
  v.key({.name = "stop",
         .help = "end a sequence when its new text contains one of these; not empty",
         .default_text = "none"},
        t.stop);
  v.key({.name = "log_probabilities", .help = "write down the log-probability of each new token"},
        t.log_probabilities);
  v.key(
      {.name = "score_prompt",
       .help =
           "and of the tokens of the prompt; prefill is faster without, because it takes the logits of all of "
           "them"},
      t.score_prompt);
  v.key({.name = "last_logits", .help = "write down the logits after the last token of each sequence"},
        t.last_logits);
}

template <class V>
void describe(V& v, PromptTable& t) {
  v.key({.name = "name", .help = "name in the results", .default_text = "`prompt1`, `prompt2`, ..."}, t.name);
  v.key({.name = "text",
         .help = "the prompt itself; empty: begin with the beginning-of-text token alone",
         .default_text = "one of `text`, `file` and `chat` is given"},
        t.text);
  v.key({.name = "file",
         .help = "a file whose whole content is the prompt, relative to the deck",
         .default_text = "see `text`"},
        t.file);
  v.key({.name = "chat",
         .help = "a user's message, put into the model's chat template",
         .default_text = "see `text`"},
        t.chat);
  v.key({.name = "system", .help = "the system's message before `chat`", .default_text = "none"}, t.system);
  v.key({.name = "special_tokens",
         .help = "special tokens that are written in the prompt are taken for what they name"},
        t.special_tokens);
  v.key({.name = "expect_file",
         .help = "a file with what prompt and continuation must be, white space at the ends aside; else exit "
                 "code 5; relative to the deck",
         .default_text = "none"},
        t.expect_file);
  v.key({.name = "expect_ids",
         .help = "the token ids that prompt and continuation must have, beginning of text included; else exit "
                 "code 5",
         .range = {.min = 0, .max = 2147483647},
         .default_text = "none",
         .repeatable = true},
        t.expect_ids);
}

template <class V>
void describe(V& v, GenerateTimingTable& t) {
  v.key({.name = "warmup",
         .help = "generations of each prompt before the first that counts",
         .range = {.min = 0, .max = 100000}},
        t.warmup);
  v.key({.name = "repeats",
         .help = "generations of each prompt; every one is stored",
         .range = {.min = 1, .max = 100000}},
        t.repeats);
}

template <class V>
void describe(V& v, GenerateCheckTable& t) {
  v.key(
      {.name = "reference",
       .help = "compare the logits of each step with those of the whole sequence computed anew (exit code 5), "
               "or with nothing"},
      t.reference);
}

constexpr std::string_view generate_kind = "generate";

template <class V>
void describe(V& v, GenerateDeck& d) {
  DeckHeader header{.kind = std::string(generate_kind)};
  describe_header(v, header, {generate_kind});
  v.table({.name = "run", .help = "The run as a whole."}, d.run);
  v.table({.name = "timing", .help = "How often a prompt is continued."}, d.timing);
  v.table({.name = "profile", .help = "What is measured besides time."}, d.profile);
  v.table({.name = "output", .help = "Where the results go."}, d.output);
  v.table({.name = "weights", .help = "The checkpoint."}, d.weights);
  v.table({.name = "tokenizer", .help = "What makes tokens of text."}, d.tokenizer);
  v.table({.name = "sampling", .help = "How the next token is chosen; by default the most likely one is."},
          d.sampling);
  v.table({.name = "generate", .help = "How it is generated."}, d.generate);
  v.table({.name = "check", .help = "Correctness, in the same run."}, d.check);
  v.list({.name = "prompt", .help = "What is continued; at least one."}, d.prompts);
}

}  // namespace kformer::Impl::schema
