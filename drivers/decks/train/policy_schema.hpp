// SPDX-License-Identifier: MIT
#pragma once

#include "decks/train/policy_tables.hpp"
#include "io/schema/key.hpp"

/// \file
/// The keys of [policy] and [[reward]].

namespace kformer::Impl::schema {

/// The keys of [policy] that change memory.
template <class V, class Table>
void describe_group_size(V& v, Table& t) {
  v.key({.name = "group_size",
         .help = "completions of each prompt; their rewards are compared. It divides `batch.sequences`",
         .range = {.min = 2, .max = 1 << 16}},
        t.group_size);
}
template <class V, class Table>
void describe_beta(V& v, Table& t) {
  v.key({.name = "beta",
         .help =
             "weight of the divergence from the reference; 0: there is none. With [adapter] that is the model "
             "without adapters, else the first weights, of which a copy stays in memory",
         .range = {.min = 0, .max = most_in_float}},
        t.beta);
}
template <class V, class Table>
void describe_sampling(V& v, Table& t) {
  v.key({.name = "max_new_tokens",
         .help = "most tokens of a completion; prompts have at most `batch.seq_len` − `max_new_tokens`",
         .range = {.min = 1, .max = 1 << 20},
         .unit = "tokens"},
        t.max_new_tokens);
  v.key({.name = "sample_batch",
         .help =
             "completions that are sampled together, each with a cache of `batch.seq_len` tokens; it does not "
             "change them",
         .range = {.min = 0, .max = 1 << 20},
         .default_text = "0, all of a step"},
        t.sample_batch);
  v.key({.name = "temperature",
         .help = "logits are divided by it to sample",
         .range = {.min = 0, .max = most_in_float}},
        t.temperature);
  v.key({.name = "top_k",
         .help = "sample from this many of the most probable tokens, 0 = all",
         .range = {.min = 0}},
        t.top_k);
  v.key({.name = "top_p",
         .help = "sample from the smallest set of tokens with this total probability",
         .range = {.min = 0, .max = 1}},
        t.top_p);
}

template <class V>
void describe(V& v, PolicyTable& t) {
  describe_group_size(v, t);
  v.key({.name = "updates",
         .help = "steps that learn from the same completions; from the second one on ratios differ from 1",
         .range = {.min = 1, .max = 1 << 16}},
        t.updates);
  v.key({.name = "loss",
         .help = "what the losses of tokens are averaged over: those of each completion (`grpo`), "
                 "`max_new_tokens` (`dr_grpo`), all tokens (`dapo`, `bnpo`)"},
        t.loss);
  v.key(
      {.name = "scale_rewards",
       .help = "what rewards less the mean of their group are divided by: the deviation of the group, that of "
               "all, or nothing"},
      t.scale_rewards);
  v.key({.name = "epsilon_low", .help = "ratios below 1 − ε are clipped", .range = {.min = 0}}, t.epsilon_low);
  v.key({.name = "epsilon_high", .help = "ratios above 1 + ε are clipped", .range = {.min = 0}},
        t.epsilon_high);
  v.key(
      {.name = "delta",
       .help = "no ratio counts as more, whatever its advantage; more than 1 + `epsilon_high`, or 0: no limit",
       .range = {.min = 0}},
      t.delta);
  describe_beta(v, t);
  v.key({.name = "mask_truncated", .help = "do not learn from completions that `max_new_tokens` cut off"},
        t.mask_truncated);
  describe_sampling(v, t);
}

template <class V>
void describe(V& v, RewardTable& t) {
  v.key(
      {.name = "kind",
       .help = "what is rewarded: the expected text (`exact_match`), a text that contains it, its last number "
               "(`arithmetic`), a pattern (`regex`), a length, or what a program says",
       .required = true},
      t.kind);
  v.key({.name = "weight",
         .help = "factor in the sum of all rewards",
         .range = {.min = -most_in_float, .max = most_in_float}},
        t.weight);
  v.key({.name = "field",
         .help = "for `exact_match`, `contains`, `arithmetic`: the member of a prompt's line with the expected "
                 "text or number"},
        t.field);
  v.key({.name = "ignore_case", .help = "for `exact_match`, `contains`, `regex`: fold letters"}, t.ignore_case);
  v.key({.name = "pattern",
         .help = "for `regex`: in the syntax of PCRE2, found anywhere in a completion",
         .default_text = "required for `regex`"},
        t.pattern);
  v.key({.name = "target",
         .help = "for `length`: where the reward is 1",
         .range = {.min = 0},
         .default_text = "required for `length`"},
        t.target);
  v.key({.name = "unit", .help = "for `length`: tokens, with the one that ends the text, or characters"},
        t.unit);
  v.key(
      {.name = "command",
       .help = "for `program`: its name and arguments. It reads a line of JSON for each completion and answers "
               "`{\"reward\": x}`",
       .default_text = "required for `program`"},
      t.command);
  v.key({.name = "timeout_s",
         .help = "for `program`: time for an answer",
         .range = {.min = 1e-3, .max = 1e6},
         .unit = "s"},
        t.timeout_s);
}

}  // namespace kformer::Impl::schema
