// SPDX-License-Identifier: MIT
#pragma once

#include "decks/scaling/scaling_deck.hpp"
#include "decks/train/train_schema.hpp"

/// \file
/// The tables of kind "scaling".

namespace kformer::Impl::schema {

template <class V>
void describe(V& v, ScalingPrecisionTable& t) {
  v.key(
      {.name = "storage", .help = "type of weights and activations", .choices = {"f32", "bf16", "f16", "f64"}},
      t.storage);
}

template <class V>
void describe(V& v, ScalingSweepTable& t) {
  v.key({.name = "grids",
         .help =
             "grids of ranks, data x context x tensor: `\"1x1x1\"`, `\"4x1x2\"`, or with stages of a pipeline "
             "`\"1x1x2x4\"`. Each takes the first ranks of those that were started; the others wait. Speed is "
             "compared with the first grid",
         .required = true,
         .repeatable = true},
        t.grids);
  v.key({.name = "zero",
         .help = "stage of ZeRO (arXiv:1910.02054), as `parallel.zero` of `train`",
         .range = {.min = 0, .max = 2}},
        t.zero);
  v.key({.name = "sequence",
         .help = "ranks along tensor divide the tokens of states, as `parallel.sequence` of `train`"},
        t.sequence);
  v.key({.name = "context_exchange",
         .help =
             "how keys and values reach other ranks along context, as `parallel.context_exchange` of `train`"},
        t.context_exchange);
  v.key({.name = "schedule", .help = "order in which the stages work, as `parallel.schedule` of `train`"},
        t.schedule);
  v.key({.name = "parts",
         .help = "parts of the model on each stage, with `interleaved`",
         .range = {.min = 1, .max = 1 << 16}},
        t.parts);
  v.key({.name = "scaling",
         .help =
             "`strong`: all grids share `batch.sequences`; `weak`: as many for each of the ranks along `data`"},
        t.scaling);
  v.key({.name = "what",
         .help =
             "`step`: a step of training; `layer`: forward and backward of one layer and one micro-batch, with "
             "what its ranks send"},
        t.what);
  v.key(backend_key(), t.backend);
  v.key({.name = "timeout_s",
         .help = "longest wait for another rank, and so for a grid of fewer ranks",
         .range = {.min = 0.001, .max = 1e9},
         .unit = "s"},
        t.timeout_s);
}

template <class V>
void describe(V& v, SimulateTable& t) {
  v.key({.name = "grids", .help = "grids, as those of [sweep]", .required = true, .repeatable = true}, t.grids);
}

template <class V>
void describe(V& v, SimulatedMachineTable& t) {
  const Range positive{.min = 0, .max = 1e30, .above = true};
  v.key({.name = "flop_rate",
         .help = "FLOP/s that a rank reaches in the products of a layer",
         .range = positive,
         .unit = "1/s",
         .required = true},
        t.flop_rate);
  v.key({.name = "memory_bandwidth",
         .help = "rate at which a rank reads and writes memory, for sums and the optimizer",
         .range = positive,
         .unit = "byte/s",
         .required = true},
        t.memory_bandwidth);
  v.key({.name = "ranks_per_node", .help = "neighbouring ranks in a node", .range = {.min = 1, .max = 1 << 20}},
        t.ranks_per_node);
  v.key({.name = "latency_inside_s",
         .help = "of a message between ranks of a node",
         .range = {.min = 0, .max = 1e3},
         .unit = "s"},
        t.latency_inside_s);
  v.key({.name = "latency_between_s",
         .help = "of a message between nodes",
         .range = {.min = 0, .max = 1e3},
         .unit = "s"},
        t.latency_between_s);
  v.key({.name = "bandwidth_inside",
         .help = "what a rank sends inside a node",
         .range = positive,
         .unit = "byte/s",
         .required = true},
        t.bandwidth_inside);
  v.key({.name = "bandwidth_between",
         .help = "what a rank sends to other nodes",
         .range = positive,
         .unit = "byte/s",
         .required = true},
        t.bandwidth_between);
}

constexpr std::string_view scaling_kind = "scaling";

template <class V>
void describe(V& v, ScalingDeck& d) {
  DeckHeader header{.kind = std::string(scaling_kind)};
  describe_header(v, header, {scaling_kind});
  v.table({.name = "run",
           .help = "General settings. On several ranks a lack of memory ends the run, whatever on_oom says."},
          d.run);
  v.table({.name = "timing", .help = "How to time a grid."}, d.timing);
  v.table({.name = "output", .help = "The result file."}, d.output);
  v.table({.name = "model", .help = "The model; keys as in published config.json files."}, d.model);
  v.table({.name = "batch", .help = "Sequences of a step, of tokens drawn at random."}, d.batch);
  v.table({.name = "precision", .help = "Types."}, d.precision);
  v.table({.name = "sweep", .help = "The grids."}, d.sweep);
  v.table({.name = "simulate", .help = "Optional: grids that are not run but simulated, on [machine]."},
          d.simulate);
  v.table({.name = "machine", .help = "The machine of [simulate]."}, d.machine);
}

}  // namespace kformer::Impl::schema
