// SPDX-License-Identifier: MIT
#pragma once

#include "decks/generate_schema.hpp"
#include "decks/memory_plan_deck.hpp"
#include "decks/sweep/sweep_schema.hpp"
#include "io/config/model_schema.hpp"

/// \file
/// The tables of kind "memory_plan".

namespace kformer::Impl::schema {

template <class V>
void describe(V& v, LanguageModelTable& t) {
  describe(v, t.layer);
  describe_model(v, t, "required, or from `config`");
}

template <class Point>
concept PointOfPlan = std::is_same_v<Point, MemoryAxes> || std::is_same_v<Point, MemoryCase>;

/// Calls `f(Key, values...)` with the members of one axis after the other, of as many points as are given.
template <class F, class... Points>
  requires(PointOfPlan<std::remove_const_t<Points>> && ...)
void for_each_axis(F&& f, Points&... points) {
  f(execution_space_axis(), points.execution_space...);
  f(Key{.name = "purpose",
        .help = "prompts and new tokens with a KV cache, or a step of training on whole sequences"},
    points.purpose...);
  f(Key{.name = "dtype",
        .help = "type of activations, KV cache and weights that are not quantised",
        .choices = {"f32", "bf16", "f16", "f64"}},
    points.dtype...);
  f(Key{.name = "weights",
        .help = "type of the matrices: `same` is that of the checkpoint or, with [model], `dtype`"},
    points.weights...);
  f(Key{.name = "kv_cache", .help = "what is kept of keys and values, as in decks of kind `generate`"},
    points.kv_cache...);
  f(prefill_chunk_key(), points.prefill_chunk...);
  f(Key{.name = "batch", .help = "sequences", .range = {.min = 1, .max = longest_axis_value}}, points.batch...);
  f(Key{.name = "context",
        .help = "tokens of a sequence, 0 = `max_position_embeddings`",
        .range = {.min = 0, .max = most_tokens},
        .unit = "tokens"},
    points.context...);
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
         .help = "memory there is, 0 = what is free on the execution space now",
         .range = {.min = 0},
         .unit = "byte"},
        t.device_bytes);
  v.key({.name = "activations",
         .help = "operands of products with quantised weights: as `dtype` says, or rounded to 8 bits"},
        t.activations);
  describe(v, t.cache);
}

constexpr std::string_view memory_plan_kind = "memory_plan";

template <class V>
void describe(V& v, MemoryPlanDeck& d) {
  DeckHeader header{.kind = std::string(memory_plan_kind)};
  describe_header(v, header, {memory_plan_kind});
  v.table({.name = "run", .help = "The run as a whole."}, d.run);
  v.table({.name = "output", .help = "Where the results go."}, d.output);
  v.table({.name = "model", .help = "The model, with the keys of published config.json files; or [weights]."},
          d.model);
  v.table({.name = "weights", .help = "A checkpoint, which says its model and types; or [model]."}, d.weights);
  v.table({.name = "sweep", .help = "The cases. Each axis takes one value or an array of different values."},
          d.sweep);
  v.table({.name = "plan", .help = "What holds for all cases."}, d.plan);
}

}  // namespace kformer::Impl::schema
