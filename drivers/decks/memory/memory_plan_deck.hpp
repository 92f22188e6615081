// SPDX-License-Identifier: MIT
#pragma once

#include <compare>
#include <optional>

#include "decks/adapter_table.hpp"
#include "decks/generate_deck.hpp"
#include "decks/loss_scale_table.hpp"
#include "decks/sweep/sweep.hpp"
#include "decks/train/train_deck.hpp"
#include "decks/train/weight_storage.hpp"
#include "kformer/core/dtype.hpp"
#include "kformer/core/types/data_format.hpp"
#include "kformer/core/types/names.hpp"
#include "kformer/core/types/optimizer_states.hpp"
#include "kformer/core/types/precision.hpp"
#include "kformer/core/types/recompute.hpp"
#include "kformer/io/model_table.hpp"

/// \file
/// Decks of kind "memory_plan": memory use of a model, over a grid of batches, contexts and precisions,
/// estimated by counting.

namespace kformer {

/// What the model is used for.
enum class PlanPurpose { generate, train };
/// The names of the enumerators in decks and results, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<PlanPurpose> = {"generate", "train"};

/// The axes of a plan: `Slot<T>` is a list of values in a sweep or an exclusion, one value in a case.
template <template <class> class Slot>
struct MemoryPoint {
  Slot<std::string>
      execution_space{};  ///< lower-case name of a Kokkos execution space; "all" and "default" in decks only
  Slot<PlanPurpose> purpose{};         ///< inference, or a step of training on whole sequences
  Slot<DType> dtype{};                 ///< activations and dense weights: f32, bf16, f16, f64
  Slot<WeightStorage> weights{};       ///< matrices of weights
  Slot<KvCacheKind> kv_cache{};        ///< what is kept between tokens; none in training
  Slot<std::int64_t> prefill_chunk{};  ///< prompt tokens per step, 0 = the whole prompt; 0 in training
  Slot<std::int64_t> batch{};          ///< sequences
  Slot<std::int64_t> context{};        ///< tokens per sequence; 0 in decks: as many as the model was trained on
  Slot<Recompute> recompute{};         ///< what layers keep for backward; none in generation
  auto operator<=>(const MemoryPoint&) const = default;  ///< axis by axis
};

/// Values along every axis; in an exclusion an empty axis matches every value.
using MemoryAxes = MemoryPoint<AxisValues>;
/// One point of a plan.
using MemoryCase = MemoryPoint<AxisValue>;

/// The table [sweep] of a plan.
struct MemorySweepTable {
  SweepMode mode = SweepMode::product;  ///< every combination, or the n-th values together
  /// The axes.
  MemoryAxes axes{{"default"},
                  {PlanPurpose::generate},
                  {DType::f32},
                  {WeightStorage::same},
                  {KvCacheKind::contiguous},
                  {512},
                  {1},
                  {0},
                  {Recompute::pointwise}};
  std::vector<MemoryAxes> exclude;                           ///< points to leave out
  bool operator==(const MemorySweepTable&) const = default;  ///< all keys equal
};

/// The table [plan]: what holds for all cases.
struct PlanTable {
  std::int64_t device_bytes = 0;                      ///< what there is, 0 = what is free now
  Activations activations = Activations::full;        ///< activations in products with quantised weights
  bool batch_invariant = false;                       ///< as of [generate]
  KvCacheTable cache;                                 ///< sizes of the cache; its keys are in [plan]
  std::int64_t live_adapters = 0;                     ///< beside the weights, in generation
  bool operator==(const PlanTable&) const = default;  ///< all keys equal
};

/// The table [run] of a plan. Without seed and on_oom: nothing is random, and nothing is allocated.
struct PlanRunTable : RunTable {};

/// The table [optimizer] of a plan: what it stores in training.
struct PlanOptimizerTable {
  OptimizerStates states = OptimizerStates::full;              ///< storage of the running means
  MasterWeights master = MasterWeights::f32;                   ///< of 16-bit weights
  bool operator==(const PlanOptimizerTable&) const = default;  ///< all keys equal
};

/// The table [objective] of a plan.
struct PlanObjectiveTable {
  ObjectiveKind kind = ObjectiveKind::next_token;              ///< what is learnt
  bool operator==(const PlanObjectiveTable&) const = default;  ///< all keys equal
};

/// The table [policy] of a plan: of these keys only those that change memory.
struct PlanPolicyTable : PolicyTable {
  std::int64_t longest_prompt = 0;  ///< tokens; 0: as long as `max_new_tokens` leaves room for
  bool operator==(const PlanPolicyTable&) const = default;  ///< all keys equal
};

/// The table [training] of a plan: what else decks of kind "train" say that takes memory.
struct PlanTrainingTable {
  Packing packing = Packing::stream;       ///< best_fit keeps the starts of documents
  Precision compute = Precision::storage;  ///< operands of products that are never stored
  bool accumulate = false;                 ///< whether a step has several micro-batches
  std::int64_t sequences = 0;              ///< of a step; 0: those of a micro-batch, and whole groups
  bool checkpoint = false;                 ///< whether checkpoints are written in the background, from a copy
  bool samples = false;                    ///< whether the model writes texts on the way
  bool model = false;                      ///< whether the trained model is written
  bool operator==(const PlanTrainingTable&) const = default;  ///< all keys equal
};

/// The table [grids] of a plan: what ranks a training may have, and what they can do.
struct PlanGridsTable {
  std::int64_t ranks = 1;                                  ///< of the whole training
  std::int64_t node = 8;                                   ///< of them in a node
  double flop_rate = 4e14;                                 ///< of a rank in products, FLOP/s
  double bandwidth = 2e11;                                 ///< that a rank sends inside a node, byte/s
  double network = 2.5e10;                                 ///< that a rank sends to other nodes, byte/s
  bool operator==(const PlanGridsTable&) const = default;  ///< all keys equal
};

/// The table [memory] of a plan.
struct PlanMemoryTable {
  std::string budget;                                 ///< most bytes of a case, "8GiB"; empty: what there is
  std::optional<std::uint64_t> budget_bytes() const;  ///< the budget, if there is one
  bool operator==(const PlanMemoryTable&) const = default;  ///< all keys equal
};

/// A deck of kind "memory_plan".
struct MemoryPlanDeck {
  PlanRunTable run;                           ///< [run]
  OutputTable output;                         ///< [output]
  std::optional<LanguageModelTable> model;    ///< [model], complete; or else
  std::optional<WeightsTable> weights;        ///< [weights], a checkpoint that says it
  MemorySweepTable sweep;                     ///< [sweep]
  PlanTable plan;                             ///< [plan]
  PlanOptimizerTable optimizer;               ///< [optimizer]
  PlanObjectiveTable objective;               ///< [objective]
  std::optional<PlanPolicyTable> policy;      ///< [policy], of objective grpo
  PlanTrainingTable training;                 ///< [training]
  std::optional<AdapterTable> adapter;        ///< [adapter], which learns in place of the weights
  std::optional<PlanParallelTable> parallel;  ///< [parallel], of whose largest rank the memory is planned
  std::optional<PlanGridsTable> grids;        ///< [grids], of which the best is looked for
  PlanMemoryTable memory;                     ///< [memory]
  DeckRecord record;                          ///< how the deck was read
};

/// Reads a deck of kind "memory_plan". Needs neither Kokkos nor a device. A checkpoint is not opened.
/// \throws FileError if the file cannot be read
/// \throws DeckError if the deck is invalid; the text lists every fault with its place
MemoryPlanDeck load_memory_plan_deck(const DeckSource& source);

/// The cases of a plan in running order: the first axis of `MemoryPoint` varies slowest. Equal cases are
/// merged, including training cases that differ only in the cache, and generation that differs in `recompute`.
/// \param sweep the table; excluded points are left out
/// \param model the model, whose context stands for 0
/// \param built_spaces lower-case names of the execution spaces of this build, the default one first: what
///                     "all" and "default" stand for
/// \throws DeckError for an execution space that is not built, or when no case is left
std::vector<MemoryCase> expand(const MemorySweepTable& sweep, const LanguageModelTable& model,
                               const std::vector<std::string>& built_spaces);

/// The reference of a plan.
template <>
std::string describe_deck_markdown<MemoryPlanDeck>();

/// The JSON Schema of a plan.
template <>
std::string describe_deck_json_schema<MemoryPlanDeck>();

}  // namespace kformer
