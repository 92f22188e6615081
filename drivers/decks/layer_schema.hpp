// SPDX-License-Identifier: MIT
#pragma once

#include "decks/layer_deck.hpp"
#include "decks/sweep/sweep_schema.hpp"
#include "io/config/model_schema.hpp"

/// \file
/// The tables of kind "layer_sweep".

namespace kformer::Impl::schema {

/// All keys but the kind, whose name differs between kinds of decks.
template <class V>
void describe_loss_scale(V& v, LossScaleTable& t) {
  v.key({.name = "initial_loss_scale",
         .help = "the first scale; with `static`, the only one",
         .range = {.min = 0, .max = 1e38, .above = true}},
        t.initial_loss_scale);
  v.key({.name = "growth_factor",
         .help = "factor on a dynamic scale after `growth_interval` good steps",
         .range = {.min = 1, .max = most_in_float}},
        t.growth_factor);
  v.key({.name = "backoff_factor",
         .help = "factor on a dynamic scale after gradients that are not finite; less than 1",
         .range = {.min = 0, .max = 1, .above = true}},
        t.backoff_factor);
  v.key({.name = "growth_interval",
         .help = "consecutive good steps before a dynamic scale grows",
         .range = {.min = 1},
         .unit = "steps"},
        t.growth_interval);
  v.key({.name = "least_loss_scale",
         .help = "lower bound of a dynamic scale",
         .range = {.min = 0, .max = 1e38, .above = true}},
        t.least_loss_scale);
  v.key({.name = "greatest_loss_scale",
         .help = "upper bound of a dynamic scale",
         .range = {.min = 0, .max = 1e38, .above = true}},
        t.greatest_loss_scale);
}

template <class V>
void describe(V& v, PrecisionTable& t) {
  v.key(compute_key(), t.compute);
  v.key({.name = "master",
         .help = "type of the weights that the optimizer updates, if those of the layer have 16 bits"},
        t.master);
  v.key({.name = "loss_scaling",
         .help = "factor on the gradient of the output; gradients in results are divided by it"},
        t.loss_scaling);
  describe_loss_scale(v, t);
}

template <class V>
void describe(V& v, OptimizerTable& t) {
  v.key({.name = "learning_rate", .help = "learning rate", .range = {.min = 0, .max = most_in_float}},
        t.learning_rate);
  v.key({.name = "beta1",
         .help = "decay of the running mean of the gradient; less than 1",
         .range = {.min = 0, .max = 1}},
        t.beta1);
  v.key({.name = "beta2",
         .help = "decay of the running mean of its square; less than 1",
         .range = {.min = 0, .max = 1}},
        t.beta2);
  v.key({.name = "eps",
         .help = "added to the root of the running mean square",
         .range = {.min = 1.2e-38, .max = most_in_float}},
        t.eps);
  v.key({.name = "weight_decay", .help = "weight decay of matrices", .range = {.min = 0, .max = most_in_float}},
        t.weight_decay);
  v.key({.name = "max_norm",
         .help = "clip the gradients of all parameters to this global norm, 0 = never",
         .range = {.min = 0, .max = most_in_float}},
        t.max_norm);
  v.key({.name = "states",
         .help = "storage of the two running means: as gradients, or 8 bits per number and a scale per 256 "
                 "numbers (not for f64)"},
        t.states);
}

template <class Point>
concept PointOfLayer = std::is_same_v<Point, LayerAxes> || std::is_same_v<Point, LayerCase>;

/// Calls `f(Key, values...)` with the members of one axis after the other, of as many points as are given.
template <class F, class... Points>
  requires(PointOfLayer<std::remove_const_t<Points>> && ...)
void for_each_axis(F&& f, Points&... points) {
  f(execution_space_axis(), points.execution_space...);
  f(Key{.name = "dtype",
        .help = "storage type of weights and activations",
        .choices = {"f32", "bf16", "f16", "f64"}},
    points.dtype...);
  f(Key{.name = "direction",
        .help = "what to measure; `step` is a training step: forward, backward and the optimizer"},
    points.direction...);
  f(batch_axis(), points.batch...);
  f(Key{.name = "seq_len",
        .help = "tokens per sequence",
        .range = {.min = 1, .max = longest_axis_value},
        .unit = "tokens",
        .default_text = "required, or from [tensors]"},
    points.seq_len...);
  f(Key{.name = "impl", .help = "implementation of attention"}, points.impl...);
}

template <class V>
void describe(V& v, LayerAxes& axes) {
  for_each_axis([&](const Key& key, auto& values) { v.key(key, values); }, axes);
}

template <class V>
void describe(V& v, LayerSweepTable& t) {
  describe_sweep(v, t);
}

template <class V>
void describe(V& v, TensorsTable& t) {
  v.key({.name = "input",
         .help = "safetensors file with `hidden_states`, `grad_output` and the weights; relative to the deck",
         .required = true},
        t.input);
  v.key({.name = "output",
         .help = "safetensors file to write: `output`, `grad.hidden_states`, `grad.<weight>` and, for a step, "
                 "`updated.<weight>`; relative to the deck",
         .default_text = "none"},
        t.output);
}

constexpr std::string_view layer_sweep_kind = "layer_sweep";

template <class V>
void describe(V& v, LayerSweepDeck& d) {
  DeckHeader header{.kind = std::string(layer_sweep_kind)};
  describe_header(v, header, {layer_sweep_kind});
  describe_run_tables(v, d);
  v.table({.name = "model", .help = "The layer; keys as in published config.json files."}, d.model);
  describe_sweep_tables(v, d);
  v.table({.name = "precision", .help = "Mixed precision; the storage type is `sweep.dtype`."}, d.precision);
  v.table({.name = "optimizer", .help = "AdamW, for direction `step`."}, d.optimizer);
  v.table(
      {.name = "tensors",
       .help = "Optional: run on tensors from a file. Batch, sequence length and the keys of [model] come from "
               "the file unless the deck sets them."},
      d.tensors);
}

}  // namespace kformer::Impl::schema
