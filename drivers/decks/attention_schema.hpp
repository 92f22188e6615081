// SPDX-License-Identifier: MIT
#pragma once

#include "decks/attention_deck.hpp"
#include "decks/sweep/sweep_schema.hpp"

/// \file
/// The tables of kind "attention_compare".

namespace kformer::Impl::schema {

template <class Point>
concept PointOfAttention = std::is_same_v<Point, AttentionAxes> || std::is_same_v<Point, AttentionCase>;

/// Calls `f(Key, values...)` with the members of one axis after the other, of as many points as are given.
template <class F, class... Points>
  requires(PointOfAttention<std::remove_const_t<Points>> && ...)
void for_each_axis(F&& f, Points&... points) {
  constexpr double most_heads = 1 << 16;
  constexpr const char* needed = "required, or from [tensors]";
  f(execution_space_axis(), points.execution_space...);
  f(Key{.name = "dtype",
        .help = "storage type",
        .choices = {"f32", "bf16", "f16", "f64"},
        .default_text = "\"f32\", or from [tensors]"},
    points.dtype...);
  f(Key{.name = "direction",
        .help = "which pass to measure",
        .choices = {"forward", "backward"},
        .default_text = "both; with [tensors], backward only if there is a `grad_out`"},
    points.direction...);
  f(Key{.name = "causal", .help = "hide later keys", .default_text = "`attention.causal`"}, points.causal...);
  f(Key{.name = "window",
        .help = "hide keys at this distance or more, 0 = none",
        .range = {.min = 0, .max = 1 << 30},
        .unit = "tokens",
        .default_text = "`attention.window`"},
    points.window...);
  f(Key{.name = "num_attention_heads",
        .help = "query heads",
        .range = {.min = 1, .max = most_heads},
        .default_text = needed},
    points.num_attention_heads...);
  f(Key{.name = "num_key_value_heads",
        .help = "key and value heads; divides the query heads; 0 = `num_attention_heads`",
        .range = {.min = 0, .max = most_heads}},
    points.num_key_value_heads...);
  f(Key{.name = "head_dim",
        .help = "features per query and key",
        .range = {.min = 1, .max = longest_axis_value},
        .default_text = needed},
    points.head_dim...);
  f(Key{.name = "v_head_dim",
        .help = "features per value, 0 = `head_dim`",
        .range = {.min = 0, .max = longest_axis_value}},
    points.v_head_dim...);
  f(batch_axis(), points.batch...);
  f(Key{.name = "q_len",
        .help = "queries per sequence, at its end; 0 = `seq_len`, 1 = one generation step",
        .range = {.min = 0, .max = longest_axis_value},
        .unit = "tokens"},
    points.q_len...);
  f(Key{.name = "seq_len",
        .help = "keys per sequence",
        .range = {.min = 1, .max = longest_axis_value},
        .unit = "tokens",
        .default_text = needed},
    points.seq_len...);
  f(Key{.name = "impl",
        .help = "implementation of attention",
        .default_text = "both; with [tensors] `\"flash\"`"},
    points.impl...);
}

template <class V>
void describe(V& v, AttentionAxes& axes) {
  for_each_axis([&](const Key& key, auto& values) { v.key(key, values); }, axes);
}

template <class V>
void describe(V& v, AttentionSweepTable& t) {
  describe_sweep(v, t);
}

template <class V>
void describe(V& v, AttentionTable& t) {
  v.key({.name = "causal", .help = "hide later keys; `sweep.causal` overrides it"}, t.causal);
  v.key({.name = "window",
         .help = "hide keys at this distance or more, 0 = none; `sweep.window` overrides it",
         .range = {.min = 0, .max = 1 << 30},
         .unit = "tokens"},
        t.window);
  v.key({.name = "softcap",
         .help = "c > 0 replaces a scaled score s by c·tanh(s/c), 0 = none; flash only",
         .range = {.min = 0, .max = most_in_float}},
        t.softcap);
  v.key(compute_key(), t.compute);
  v.key({.name = "scale",
         .help = "factor on the scores, 0 = 1/√head_dim",
         .range = {.min = -most_in_float, .max = most_in_float}},
        t.scale);
}

template <class V>
void describe(V& v, LimitsTable& t) {
  v.key({.name = "device_bytes",
         .help = "skip cases whose forecast exceeds this (status `skipped_memory`), 0 = no limit",
         .range = {.min = 0},
         .unit = "byte"},
        t.device_bytes);
}

template <class V>
void describe(V& v, AttentionTensorsTable& t) {
  v.key({.name = "input",
         .help = "safetensors file with `q`, `k`, `v` and optional `grad_out`, `bias`, `sinks`, "
                 "`alibi_slopes`, `cu_seqlens_q`, `cu_seqlens_kv`; relative to the deck",
         .required = true},
        t.input);
  v.key({.name = "output",
         .help = "safetensors file to write: `out`, `lse`, `grad.q`, `grad.k`, `grad.v`, `grad.bias` and "
                 "`grad.sinks`; relative to the deck",
         .default_text = "none"},
        t.output);
}

constexpr std::string_view attention_compare_kind = "attention_compare";

template <class V>
void describe(V& v, AttentionCompareDeck& d) {
  DeckHeader header{.kind = std::string(attention_compare_kind)};
  describe_header(v, header, {attention_compare_kind});
  describe_run_tables(v, d);
  v.table({.name = "attention", .help = "Options of all cases."}, d.attention);
  describe_sweep_tables(v, d);
  v.table({.name = "limits", .help = "Cases not to try."}, d.limits);
  v.table({.name = "tensors",
           .help = "Optional: run on tensors from a file, which also define the storage type and all extents."},
          d.tensors);
}

}  // namespace kformer::Impl::schema
