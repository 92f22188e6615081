// SPDX-License-Identifier: MIT
#pragma once

#include <optional>

#include "decks/loss_scale_table.hpp"
#include "decks/sweep/sweep.hpp"
#include "kformer/core/dtype.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/core/types/optimizer_states.hpp"
#include "kformer/io/model_table.hpp"

/// \file
/// Decks of kind "layer_sweep": one transformer layer, timed and checked over a grid of shapes and precisions.

namespace kformer {

/// The table [precision]. The storage type is an axis of the sweep.
struct PrecisionTable : LossScaleTable {
  Precision compute = Precision::storage;                  ///< operands of products that are never stored
  MasterWeights master = MasterWeights::f32;               ///< of 16-bit weights
  bool operator==(const PrecisionTable&) const = default;  ///< all keys equal
};

/// The table [optimizer]: AdamW, for the direction "step".
struct OptimizerTable {
  double learning_rate = 1e-3;                             ///< α
  double beta1 = 0.9;                                      ///< of the running mean of the gradient
  double beta2 = 0.999;                                    ///< of the running mean of its square
  double eps = 1e-8;                                       ///< added to the root of the running mean square
  double weight_decay = 0;                                 ///< λ, of matrices
  double max_norm = 0;                                     ///< gradients are clipped to this norm, 0 = never
  OptimizerStates states = OptimizerStates::full;          ///< storage of the running means
  bool operator==(const OptimizerTable&) const = default;  ///< all keys equal
};

/// The axes of a layer sweep: `Slot<T>` is a list of values in a sweep or an exclusion, one value in a case.
template <template <class> class Slot>
struct LayerPoint {
  Slot<std::string>
      execution_space{};  ///< lower-case name of a Kokkos execution space; "all" and "default" in decks only
  Slot<DType> dtype{};    ///< storage type: f32, bf16, f16, f64
  Slot<Direction> direction{};                         ///< which pass to measure
  Slot<std::int64_t> batch{};                          ///< sequences
  Slot<std::int64_t> seq_len{};                        ///< tokens per sequence
  Slot<AttentionAlgorithm> impl{};                     ///< attention
  bool operator==(const LayerPoint&) const = default;  ///< all axes equal
};

/// Values along every axis; in an exclusion an empty axis matches every value.
using LayerAxes = LayerPoint<AxisValues>;
/// One point of a layer sweep.
using LayerCase = LayerPoint<AxisValue>;

/// The table [sweep].
struct LayerSweepTable {
  SweepMode mode = SweepMode::product;  ///< every combination, or the n-th values together
  /// The axes. batch and seq_len are empty where the tensor file says them.
  LayerAxes axes{{"all"}, {DType::f32}, {Direction::forward, Direction::backward},
                 {},      {},           {AttentionAlgorithm::standard}};
  std::vector<LayerAxes> exclude;                           ///< points to leave out
  bool operator==(const LayerSweepTable&) const = default;  ///< all keys equal
};

/// A deck of kind "layer_sweep".
struct LayerSweepDeck {
  RunTable run;                         ///< [run]
  TimingTable timing;                   ///< [timing]
  ProfileTable profile;                 ///< [profile]
  OutputTable output;                   ///< [output]
  ModelTable model;                     ///< [model]
  LayerSweepTable sweep;                ///< [sweep]
  CheckTable check;                     ///< [check]
  PrecisionTable precision;             ///< [precision]
  OptimizerTable optimizer;             ///< [optimizer]
  std::optional<TensorsTable> tensors;  ///< [tensors], if the deck has it
  DeckRecord record;                    ///< how the deck was read
};

/// Reads a deck of kind "layer_sweep". Needs neither Kokkos nor a device.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
LayerSweepDeck load_layer_deck(const DeckSource& source);

/// The cases of a sweep in running order: the first axis of `LayerPoint` varies slowest, so that
/// implementations are adjacent. An axis without values gives 0: the tensor file then has
/// the value.
/// \param sweep the table; excluded points are left out
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first: what
///                     "all" and "default" stand for
/// \throws DeckError for an execution space that is not built, or when no case is left
std::vector<LayerCase> expand(const LayerSweepTable& sweep, const std::vector<std::string>& built_spaces);

/// The reference of a layer sweep.
template <>
std::string describe_deck_markdown<LayerSweepDeck>();

/// The JSON Schema of a layer sweep.
template <>
std::string describe_deck_json_schema<LayerSweepDeck>();

}  // namespace kformer
