// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "io/schema/key.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/model/lora_config.hpp"

/// \file
/// The table [adapter], for every kind of deck that has it.

namespace kformer {

/// The linear maps that get an adapter.
enum class AdapterTarget { q, k, v, o, gate, up, down, all };
/// The names of the enumerators in decks, in order: those of `Projection`, then all of them.
template <>
inline constexpr std::array<std::string_view, 8> names_of<AdapterTarget> = {"q",    "k",  "v",    "o",
                                                                            "gate", "up", "down", "all"};

/// The table [adapter.ranks]: ranks of single maps.
struct AdapterRanksTable {
  std::optional<std::int64_t> q, k, v, o, gate, up, down;
  bool operator==(const AdapterRanksTable&) const = default;  ///< all keys equal
};

/// The table [adapter].
struct AdapterTable {
  std::filesystem::path path;  ///< folder of an adapter to continue from, absolute; empty: a new one
  std::vector<AdapterTarget> targets{AdapterTarget::all};  ///< maps with an adapter
  std::int64_t rank = 16;                                  ///< of all that `ranks` does not name
  AdapterRanksTable ranks;                                 ///< [adapter.ranks]
  double alpha = 32;                                       ///< α; the adapter is multiplied by α/rank
  bool rank_stabilized = false;                            ///< by α/√rank
  bool dora = false;                                       ///< rows have magnitudes
  double learning_rate_ratio = 1;                          ///< of B over A
  std::optional<double> dropout;                         ///< probability; none: of the adapter of `path`, or 0
  std::int64_t seed = 1;                                 ///< of A and dropout; `run.seed` if not given
  bool operator==(const AdapterTable&) const = default;  ///< all keys equal
};

/// The adapters that a table describes.
/// \param table  [adapter]
/// \param stored what the folder of `path` says; null without
LoraConfig lora_config(const AdapterTable& table, const LoraConfig* stored = nullptr);

namespace Impl::schema {

/// Ranks that a deck may ask for.
inline constexpr double largest_adapter_rank = 65536;

template <class V>
void describe(V& v, AdapterRanksTable& t) {
  const auto key = [&](const char* name, std::optional<std::int64_t>& rank) {
    v.key({.name = name,
           .help = "rank of this map",
           .range = {.min = 1, .max = largest_adapter_rank},
           .default_text = "`adapter.rank`"},
          rank);
  };
  key("q", t.q);
  key("k", t.k);
  key("v", t.v);
  key("o", t.o);
  key("gate", t.gate);
  key("up", t.up);
  key("down", t.down);
}

template <class V>
void describe(V& v, AdapterTable& t) {
  v.key({.name = "path",
         .help = "folder of an adapter in PEFT's layout to continue from, relative to the deck; it says what "
                 "the keys `targets`, `rank`, `ranks`, `alpha`, `rank_stabilized` and `dora` say otherwise",
         .default_text = "none: a new adapter"},
        t.path);
  v.key({.name = "targets", .help = "linear maps that get an adapter, in every layer"}, t.targets);
  v.key({.name = "rank", .help = "rank of the adapters", .range = {.min = 1, .max = largest_adapter_rank}},
        t.rank);
  v.table({.name = "ranks", .help = "Other ranks, by map."}, t.ranks);
  v.key({.name = "alpha",
         .help = "α: what an adapter computes is multiplied by α/rank",
         .range = {.min = 0, .max = most_in_float, .above = true}},
        t.alpha);
  v.key({.name = "rank_stabilized", .help = "rsLoRA: by α/√rank"}, t.rank_stabilized);
  v.key({.name = "dora", .help = "DoRA: the rows of the weights have magnitudes, which learn, too"}, t.dora);
  v.key({.name = "learning_rate_ratio",
         .help = "LoRA+: the learning rate of B, and of magnitudes, over that of A, which is `optimizer.lr`",
         .range = {.min = 0, .max = most_in_float, .above = true}},
        t.learning_rate_ratio);
  v.key({.name = "dropout",
         .help = "probability, below 1, that an adapter loses an element of its input in a step of training",
         .range = {.min = 0},
         .default_text = "0, or that of the adapter in `path`"},
        t.dropout);
  v.key({.name = "seed",
         .help = "seed of A and of dropout; B starts as 0",
         .range = {.min = 0},
         .default_text = "`run.seed`"},
        t.seed);
}

}  // namespace Impl::schema

}  // namespace kformer
