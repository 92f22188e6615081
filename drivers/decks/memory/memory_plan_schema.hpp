// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_schema.hpp"
#include "decks/language_model_schema.hpp"
#include "decks/memory/memory_plan_deck.hpp"
#include "decks/sweep/sweep_schema.hpp"
#include "decks/train/policy_schema.hpp"
#include "decks/train/train_schema.hpp"

/// \file
/// The tables of kind "memory_plan".

namespace kformer::Impl::schema {

template <class V>
void describe(V& v, PlanRunTable& t) {
  v.key(run_name_key(), t.name);
  v.key(run_threads_key(), t.threads);
  v.key(run_walltime_key(), t.walltime_s);
}

template <class Point>
concept PointOfPlan = std::is_same_v<Point, MemoryAxes> || std::is_same_v<Point, MemoryCase>;

/// Calls `f(Key, values...)` with the members of one axis after the other, of as many points as are given.
template <class F, class... Points>
  requires(PointOfPlan<std::remove_const_t<Points>> && ...)
void for_each_axis(F&& f, Points&... points) {
  f(execution_space_axis(), points.execution_space...);
  f(Key{.name = "purpose", .help = "generation with a KV cache, or a training step on whole sequences"},
    points.purpose...);
  f(Key{.name = "dtype",
        .help = "type of activations, KV cache and unquantised weights",
        .choices = {"f32", "bf16", "f16", "f64"}},
    points.dtype...);
  f(Key{.name = "weights",
        .help = "type of the matrices; `same` is that of the checkpoint or, with [model], `dtype`. In "
                "training, which needs [adapter] then, those of the projections alone, and embedding and head "
                "are in `dtype`"},
    points.weights...);
  f(Key{.name = "kv_cache", .help = "keys and values to keep, as in decks of kind `generate`"},
    points.kv_cache...);
  f(prefill_chunk_key(), points.prefill_chunk...);
  f(Key{.name = "batch", .help = "sequences", .range = {.min = 1, .max = longest_axis_value}}, points.batch...);
  f(Key{.name = "context",
        .help = "tokens per sequence, 0 = `max_position_embeddings`",
        .range = {.min = 0, .max = most_tokens},
        .unit = "tokens"},
    points.context...);
  f(Key{.name = "recompute",
        .help = "in training: what layers keep between forward and backward, as in decks of kind `train`; "
                "`auto` is the fastest mixture that fits"},
    points.recompute...);
}

template <class V>
void describe(V& v, MemoryAxes& axes) {
  for_each_axis([&](const Key& key, auto& values) { v.key(key, values); }, axes);
}

template <class V>
void describe(V& v, MemorySweepTable& t) {
  describe_sweep(v, t);
}

template <class V>
void describe(V& v, PlanTable& t) {
  v.key({.name = "device_bytes",
         .help = "available memory, 0 = what is free on the execution space now",
         .range = {.min = 0},
         .unit = "byte"},
        t.device_bytes);
  v.key({.name = "activations",
         .help = "activations in products with quantised weights: as `dtype`, or rounded to 8 bits"},
        t.activations);
  v.key(batch_invariant_key(), t.batch_invariant);
  v.key({.name = "live_adapters",
         .help = "in generation: adapters as [adapter] says that stay beside the weights",
         .range = {.min = 0, .max = 4096}},
        t.live_adapters);
  describe(v, t.cache);
}

template <class V>
void describe(V& v, PlanOptimizerTable& t) {
  describe_optimizer_storage(v, t);
}

template <class V>
void describe(V& v, PlanObjectiveTable& t) {
  v.key(
      {.name = "kind",
       .help =
           "what is learnt, as in decks of kind `train`. Memory differs only for `grpo`, whose model "
           "also samples, with a cache, and for which `plan.batch_invariant` is `true` if not given; for `dpo` "
           "`batch` must be even, for a pair is two sequences"},
      t.kind);
}

template <class V>
void describe(V& v, PlanPolicyTable& t) {
  describe_group_size(v, t);
  describe_beta(v, t);
  describe_sampling(v, t);
  v.key({.name = "longest_prompt",
         .help = "tokens of the longest prompt",
         .range = {.min = 0, .max = longest_axis_value},
         .unit = "tokens",
         .default_text = "0, `context` − `max_new_tokens`"},
        t.longest_prompt);
}

template <class V>
void describe(V& v, PlanTrainingTable& t) {
  v.key({.name = "packing", .help = "as `data.packing`; `best_fit` also keeps the starts of documents"},
        t.packing);
  v.key(compute_key(), t.compute);
  v.key(
      {.name = "accumulate",
       .help = "count steps of several micro-batches, `batch.sequences` > `batch.micro_batch`: gradients last "
               "from one to the next and cannot lie over activations"},
      t.accumulate);
  v.key({.name = "sequences",
         .help = "sequences of a step, `batch.sequences`; `batch` is then a micro-batch, as with `accumulate`",
         .range = {.min = 0, .max = longest_axis_value},
         .default_text = "0, those of `batch`; with `grpo` the fewest whole groups that have them"},
        t.sequences);
  v.key({.name = "checkpoint",
         .help = "count the copy from which [checkpoint] with `background = true` writes files"},
        t.checkpoint);
  v.key({.name = "samples",
         .help = "count the row of logits that [samples] needs, or `output.model` with [adapter]"},
        t.samples);
  v.key({.name = "model",
         .help = "with `parallel.tensor`: count the array into which the first rank gathers weights for "
                 "`output.model`"},
        t.model);
}

template <class V>
void describe(V& v, PlanMemoryTable& t) {
  v.key({.name = "budget",
         .help = "memory to plan for, also of another machine; with `plan.device_bytes` the smaller one; on a "
                 "device, device memory",
         .range = {.min = 0},
         .unit = "byte",
         .default_text = "what is available"},
        t.budget);
}

template <class V>
void describe(V& v, PlanGridsTable& t) {
  v.key({.name = "ranks",
         .help = "of a training; every `data` × `context` × `tensor` × `pipeline` of as many, and every stage "
                 "of ZeRO, is "
                 "tried, with the other keys of [parallel]",
         .range = {.min = 1, .max = 1 << 16}},
        t.ranks);
  v.key({.name = "node",
         .help = "ranks of a node; neighbours along `tensor` come first",
         .range = {.min = 1, .max = 1 << 16}},
        t.node);
  v.key({.name = "flop_rate",
         .help = "of a rank, in products of a layer",
         .range = {.min = 1, .max = 1e30},
         .unit = "FLOP/s"},
        t.flop_rate);
  v.key({.name = "bandwidth",
         .help = "at which a rank sends inside a node",
         .range = {.min = 1, .max = 1e30},
         .unit = "byte/s"},
        t.bandwidth);
  v.key({.name = "network",
         .help = "at which it sends to other nodes",
         .range = {.min = 1, .max = 1e30},
         .unit = "byte/s"},
        t.network);
}

constexpr std::string_view memory_plan_kind = "memory_plan";

template <class V>
void describe(V& v, MemoryPlanDeck& d) {
  DeckHeader header{.kind = std::string(memory_plan_kind)};
  describe_header(v, header, {memory_plan_kind});
  v.table({.name = "run", .help = "General settings."}, d.run);
  v.table({.name = "output", .help = "The result file."}, d.output);
  v.table(
      {.name = "model", .help = "The model; keys as in published config.json files. Alternative to [weights]."},
      d.model);
  v.table({.name = "weights", .help = "A checkpoint, which defines model and types. Alternative to [model]."},
          d.weights);
  v.table({.name = "sweep", .help = "The cases. Each axis takes one value or an array of different values."},
          d.sweep);
  v.table({.name = "plan", .help = "Settings of all cases."}, d.plan);
  v.table({.name = "optimizer", .help = "AdamW, in training."}, d.optimizer);
  v.table({.name = "objective", .help = "What is learnt, in training."}, d.objective);
  v.table({.name = "policy", .help = "Of the objective `grpo`: how completions are sampled."}, d.policy);
  v.table({.name = "training", .help = "Other settings of `train` decks that need memory."}, d.training);
  v.table(
      {.name = "adapter",
       .help = "Optional: low-rank adapters (LoRA). In training they learn, as in decks of kind `train`; in "
               "generation there are `plan.live_adapters` of them."},
      d.adapter);
  v.table(
      {.name = "parallel",
       .help = "Optional: several ranks train together, and the memory is that of the first one; with `tensor` "
               "alone they also generate together, and it is that of the one that needs most."},
      d.parallel);
  v.table(
      {.name = "grids",
       .help =
           "Optional: the grids of so many ranks whose memory suffices, by an estimate of the time of a step: "
           "products at `flop_rate`, idle ranks of a pipeline, and messages that nothing hides."},
      d.grids);
  v.table({.name = "memory", .help = "What there is to plan for."}, d.memory);
}

}  // namespace kformer::Impl::schema
