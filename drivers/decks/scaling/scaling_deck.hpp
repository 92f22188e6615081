// SPDX-License-Identifier: MIT
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "decks/train/train_deck.hpp"

/// \file
/// Decks of kind "scaling": a step of training, or a layer, on several grids of ranks.

namespace kformer {

/// How the work of a step depends on the grid.
enum class ScalingKind {
  strong,  ///< it does not
  weak     ///< sequences grow with the ranks along `data`
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<ScalingKind> = {"strong", "weak"};

/// What is timed.
enum class ScalingWork {
  step,  ///< a step of training
  layer  ///< forward and backward of one layer, of one micro-batch
};
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<ScalingWork> = {"step", "layer"};

/// The grid that a text such as "4x1x2" or "4x1x2x2" means, data x context x tensor x pipeline; nothing if it means none.
std::optional<PlanParallelTable> parse_grid(const std::string& text);

/// "4x1x2", or with stages "4x1x2x2".
std::string grid_name(const PlanParallelTable& grid);

/// The table [precision] of a scaling study.
struct ScalingPrecisionTable {
  DType storage = DType::f32;                                     ///< weights and activations
  bool operator==(const ScalingPrecisionTable&) const = default;  ///< all keys equal
};

/// The table [sweep] of a scaling study.
struct ScalingSweepTable {
  std::vector<std::string> grids;  ///< data x context x tensor x pipeline each
  std::int64_t zero = 0;           ///< stage of ZeRO
  bool sequence = false;           ///< whether ranks of tensor divide states, too
  ContextExchange context_exchange =
      ContextExchange::all_gather;  ///< of keys and values, among those of context
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;  ///< of the stages
  std::int64_t parts = 1;                                                  ///< of the model on each stage
  ScalingKind scaling = ScalingKind::strong;                               ///< how work depends on the grid
  ScalingWork what = ScalingWork::step;                                    ///< what is timed
  RankBackend backend = RankBackend::mpi;                                  ///< through what ranks send messages
  double timeout_s = 600;                                                  ///< of every wait for another rank
  bool operator==(const ScalingSweepTable&) const = default;               ///< all keys equal
};

/// The table [simulate]: grids that need not be there.
struct SimulateTable {
  std::vector<std::string> grids;                         ///< data x context x tensor x pipeline each
  bool operator==(const SimulateTable&) const = default;  ///< all keys equal
};

/// The table [machine]: what the grids of [simulate] run on.
struct SimulatedMachineTable {
  double flop_rate = 0;                                           ///< FLOP/s that a rank reaches
  double memory_bandwidth = 0;                                    ///< byte/s of a rank
  std::int64_t ranks_per_node = 1;                                ///< neighbours
  double latency_inside_s = 0, latency_between_s = 0;             ///< of a message, in a node and between nodes
  double bandwidth_inside = 0, bandwidth_between = 0;             ///< byte/s that a rank sends
  bool operator==(const SimulatedMachineTable&) const = default;  ///< all keys equal
};

/// A deck of kind "scaling".
struct ScalingDeck {
  TrainRunTable run;                             ///< [run]
  TimingTable timing;                            ///< [timing]
  OutputTable output;                            ///< [output]
  std::optional<LanguageModelTable> model;       ///< [model], complete
  BatchTable batch;                              ///< [batch]
  ScalingPrecisionTable precision;               ///< [precision]
  ScalingSweepTable sweep;                       ///< [sweep]
  std::optional<SimulateTable> simulate;         ///< [simulate]
  std::optional<SimulatedMachineTable> machine;  ///< [machine], of [simulate]
  DeckRecord record;                             ///< how the deck was read
};

/// Reads a deck of kind "scaling". Needs neither Kokkos nor a device.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
ScalingDeck load_scaling_deck(const DeckSource& source);

/// The sequences of a step on a grid.
std::int64_t sequences_of(const ScalingDeck& deck, const PlanParallelTable& grid);

/// A grid of the deck, with what it says of all.
PlanParallelTable grid_of_deck(const ScalingDeck& deck, const std::string& text);

/// Why a grid cannot run or be simulated, whatever the number of ranks: a sentence, or nothing.
std::string undivided(const ScalingDeck& deck, const PlanParallelTable& grid);

/// The reference of a scaling study.
template <>
std::string describe_deck_markdown<ScalingDeck>();

/// The JSON Schema of a scaling study.
template <>
std::string describe_deck_json_schema<ScalingDeck>();

}  // namespace kformer
