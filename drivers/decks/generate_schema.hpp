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
  v.key({.name = "format", .help = "format of the weights; `auto` detects it from the path"}, t.format);
  v.key({.name = "path",
         .help = "a folder with `config.json` and safetensors files, a safetensors or GGUF file, or a packed "
                 "checkpoint; relative to the deck",
         .required = true},
        t.path);
  v.key({.name = "keep_quantized",
         .help = "keep quantised weights quantised in products; `false` expands them on loading"},
        t.keep_quantized);
}

template <class V>
void describe(V& v, TokenizerTable& t) {
  v.key({.name = "format",
         .help = "format of the tokenizer; `auto` takes `tokenizer.model` or `tokenizer.json` beside the "
                 "weights, or the vocabulary inside a GGUF file; with `byte` every byte is a token"},
        t.format);
  v.key({.name = "path", .help = "tokenizer file, relative to the deck", .default_text = "beside the weights"},
        t.path);
  v.key({.name = "add_bos",
         .help = "start every prompt with the beginning-of-text token",
         .default_text = "as the tokenizer says"},
        t.add_bos);
}

template <class V>
void describe(V& v, SamplingTable& t) {
  v.key({.name = "temperature",
         .help = "logits are divided by this; 0 takes the most likely token",
         .range = {.min = 0, .max = most_in_float}},
        t.temperature);
  v.key({.name = "top_k",
         .help = "keep this many of the most likely tokens, 0 = all",
         .range = {.min = 0, .max = most_tokens}},
        t.top_k);
  v.key({.name = "top_p",
         .help = "keep the smallest set of most likely tokens that together have this probability, 1 = all",
         .range = {.min = 0, .max = 1, .above = true}},
        t.top_p);
  v.key({.name = "min_p",
         .help = "keep tokens with at least this share of the largest probability, 0 = all",
         .range = {.min = 0, .max = 1}},
        t.min_p);
  v.key({.name = "repetition_penalty",
         .help = "the logit of an earlier token is divided by this if positive, otherwise multiplied; 1 = no "
                 "penalty",
         .range = {.min = 1 / most_in_float, .max = most_in_float}},
        t.repetition_penalty);
  v.key({.name = "repetition_window",
         .help = "how many earlier tokens the penalty covers, 0 = all",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.repetition_window);
  v.key({.name = "seed",
         .help = "seed of the draws; each row of a batch has its own stream",
         .range = {.min = 0},
         .default_text = "`run.seed`"},
        t.seed);
}

/// Its keys are in the table that contains it.
template <class V>
void describe(V& v, KvCacheTable& t) {
  v.key({.name = "page_tokens",
         .help = "for `paged`: tokens per page",
         .range = {.min = 1, .max = 1 << 16},
         .unit = "tokens"},
        t.page_tokens);
  v.key({.name = "window",
         .help = "for `window`, required there: the last tokens to keep",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.window);
  v.key({.name = "sinks",
         .help = "for `window`: how many of the first tokens to keep too",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.sinks);
  v.key({.name = "budget",
         .help = "for `heavy_hitters`, required there: tokens to keep",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.budget);
  v.key({.name = "recent",
         .help = "for `heavy_hitters`: how many of these are the last tokens; the others are those with the "
                 "most attention",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens",
         .default_text = "half of `budget`"},
        t.recent);
}

inline Key batch_invariant_key() {
  return {.name = "batch_invariant",
          .help =
              "the results of a sequence have the same bits whatever is computed beside it, in training and in "
              "generation: in any batch, at any place, behind any chunks, in `contiguous` and `paged` caches; "
              "few rows then take longer"};
}

inline Key prefill_chunk_key() {
  return {.name = "prefill_chunk",
          .help = "prompt tokens per step, 0 = the whole prompt",
          .range = {.min = 0, .max = most_tokens},
          .unit = "tokens"};
}

template <class V>
void describe(V& v, GenerateTable& t) {
  v.key({.name = "execution_space",
         .help = "where to run; `\"default\"` is the default space of the build",
         .choices = {"default", "serial", "openmp", "threads", "cuda", "hip", "sycl"}},
        t.execution_space);
  v.key({.name = "dtype",
         .help = "type of activations, KV cache and unquantised weights",
         .choices = {"f32", "bf16", "f16", "f64"}},
        t.dtype);
  v.key({.name = "activations",
         .help = "activations in products with quantised weights: as `dtype`, or rounded to 8 bits"},
        t.activations);
  v.key(batch_invariant_key(), t.batch_invariant);
  v.key({.name = "max_new_tokens",
         .help = "end a sequence after this many new tokens; 0 = the prompt only",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.max_new_tokens);
  v.key({.name = "batch",
         .help = "sequences per prompt, which run together",
         .range = {.min = 1, .max = 1 << 16}},
        t.batch);
  v.key({.name = "kv_cache",
         .help = "keys and values to keep: all (`contiguous`, `paged`, `int8`), some (`window`, "
                 "`heavy_hitters`), or none: `none` recomputes everything for each token"},
        t.kv_cache);
  describe(v, t.cache);
  v.key(prefill_chunk_key(), t.prefill_chunk);
  v.key({.name = "max_seq_len",
         .help = "maximum tokens per sequence, 0 = as many as prompt and new tokens need",
         .range = {.min = 0, .max = most_tokens},
         .unit = "tokens"},
        t.max_seq_len);
  v.key({.name = "share_prefix", .help = "compute a shared prefix of prompts once"}, t.share_prefix);
  v.key({.name = "stop_at_eos", .help = "end a sequence after an end-of-text token"}, t.stop_at_eos);
  v.key({.name = "stop",
         .help = "end a sequence when its new text contains one of these; not empty",
         .default_text = "none"},
        t.stop);
  v.key({.name = "log_probabilities", .help = "record the log-probability of each new token"},
        t.log_probabilities);
  v.key({.name = "score_prompt",
         .help =
             "also record it for the prompt tokens; this slows prefill, because it needs the logits of all of "
             "them"},
        t.score_prompt);
  v.key({.name = "last_logits", .help = "record the logits after the last token of each sequence"},
        t.last_logits);
}

template <class V>
void describe(V& v, PromptTable& t) {
  v.key({.name = "name", .help = "name in the results", .default_text = "`prompt1`, `prompt2`, ..."}, t.name);
  v.key({.name = "text",
         .help = "the prompt itself; if empty, start from the beginning-of-text token alone",
         .default_text = "give one of `text`, `file` and `chat`"},
        t.text);
  v.key({.name = "file",
         .help = "file that contains the prompt, relative to the deck",
         .default_text = "see `text`"},
        t.file);
  v.key({.name = "chat",
         .help = "a user message, put into the model's chat template",
         .default_text = "see `text`"},
        t.chat);
  v.key({.name = "system", .help = "a system message before `chat`", .default_text = "none"}, t.system);
  v.key({.name = "special_tokens", .help = "read special tokens in the prompt text as special tokens"},
        t.special_tokens);
  v.key({.name = "adapter",
         .help = "the name of one of [[adapters]] to continue with",
         .default_text = "none: the model alone"},
        t.adapter);
  v.key({.name = "expect_file",
         .help = "file with the expected prompt and continuation, relative to the deck; white space at the "
                 "ends is ignored; exit code 5 on a difference",
         .default_text = "none"},
        t.expect_file);
  v.key({.name = "expect_ids",
         .help = "expected token ids of prompt and continuation, including beginning-of-text; exit code 5 on "
                 "a difference",
         .range = {.min = 0, .max = 2147483647},
         .default_text = "none",
         .repeatable = true},
        t.expect_ids);
}

template <class V>
void describe(V& v, GenerateTimingTable& t) {
  v.key({.name = "warmup",
         .help = "generations of each prompt before the first that is recorded",
         .range = {.min = 0, .max = 100000}},
        t.warmup);
  v.key({.name = "repeats", .help = "recorded generations of each prompt", .range = {.min = 1, .max = 100000}},
        t.repeats);
}

template <class V>
void describe(V& v, GenerateCheckTable& t) {
  v.key(
      {.name = "reference",
       .help =
           "compare the logits of each step with a recomputation of the whole sequence, in double and by other "
           "kernels (exit code 5 on a difference), or not at all; slow, for small models"},
      t.reference);
}

inline Key backend_key() {
  return {
      .name = "backend",
      .help =
          "through what ranks send messages: `mpi`; `nccl`: those in the memory of GPUs through NCCL, on the "
          "stream of the kernels; the build must have it (Kformer_ENABLE_NCCL)"};
}

inline Key timeout_key() {
  return {.name = "timeout_s",
          .help = "longest wait for another rank; then the run ends with a sentence that names it",
          .range = {.min = 0.001, .max = 1e9},
          .unit = "s"};
}

template <class V>
void describe(V& v, GenerateParallelTable& t) {
  v.key({.name = "tensor",
         .help = "ranks that divide the model, its heads, the features inside its MLPs and its words "
                 "(arXiv:1909.08053), one process each: `mpiexec -n 4 kformer-generate …`",
         .range = {.min = 1, .max = 1 << 10}},
        t.tensor);
  v.key(backend_key(), t.backend);
  v.key(timeout_key(), t.timeout_s);
}

constexpr std::string_view generate_kind = "generate";

template <class V>
void describe(V& v, AdapterPathTable& t) {
  v.key({.name = "path",
         .help = "folder of an adapter in PEFT's layout or its GGUF file, relative to the deck; weights that "
                 "it changes must not stay quantised (`weights.keep_quantized = false`)",
         .default_text = "none"},
        t.path);
  v.key(
      {.name = "live",
       .help =
           "keep the adapter beside the weights, which may then stay quantised, instead of adding it to them"},
      t.live);
}

template <class V>
void describe(V& v, NamedAdapterTable& t) {
  v.key({.name = "name", .help = "its name in prompts and results", .required = true}, t.name);
  v.key({.name = "path",
         .help = "folder of an adapter in PEFT's layout or its GGUF file, relative to the deck",
         .required = true},
        t.path);
}

template <class V>
void describe(V& v, GenerateDeck& d) {
  DeckHeader header{.kind = std::string(generate_kind)};
  describe_header(v, header, {generate_kind});
  v.table({.name = "run", .help = "General settings."}, d.run);
  v.table({.name = "timing", .help = "How often to continue a prompt."}, d.timing);
  v.table({.name = "profile", .help = "What to measure besides time."}, d.profile);
  v.table({.name = "output", .help = "The result file."}, d.output);
  v.table({.name = "weights", .help = "The checkpoint."}, d.weights);
  v.table({.name = "adapter",
           .help = "Optional: an adapter for all prompts; it is added to the weights when they are loaded."},
          d.adapter);
  v.list({.name = "adapters",
          .help = "Optional: adapters that stay beside the weights, which may be quantised; each prompt has "
                  "one or none."},
         d.adapters);
  v.table({.name = "tokenizer", .help = "The tokenizer."}, d.tokenizer);
  v.table({.name = "sampling", .help = "How to choose the next token; by default the most likely one."},
          d.sampling);
  v.table({.name = "generate", .help = "Generation."}, d.generate);
  v.table({.name = "parallel", .help = "Optional: several ranks of MPI generate together."}, d.parallel);
  v.table({.name = "check", .help = "Correctness checks in the same run."}, d.check);
  v.list({.name = "prompt", .help = "The prompts to continue; at least one."}, d.prompts);
}

}  // namespace kformer::Impl::schema
