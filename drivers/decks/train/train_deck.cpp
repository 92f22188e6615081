// SPDX-License-Identifier: MIT
#include "decks/train/train_deck.hpp"

#include "decks/engine/deck_of_kind.hpp"
#include "decks/language_model.hpp"
#include "decks/sweep/sweep_cases.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "decks/train/train_checks.hpp"
#include "decks/train/train_schema.hpp"
#include "io/schema/bytes.hpp"

namespace kformer {

using namespace Impl::schema;

namespace {

void fill_in_defaults(TrainDeck& deck, const LoadedDeck& loaded) {
  if (deck.model && !deck.init) deck.init.emplace();
  if (deck.init && !has(loaded, {"init", "seed"})) deck.init->seed = deck.run.seed;
  if (deck.data.format == DataFormat::synthetic) {
    if (!deck.data.task) deck.data.task = SyntheticTask::copy;
    if (!deck.data.length) deck.data.length = 8;
    if (!deck.data.examples) deck.data.examples = 10000;
  }
  const bool has_answers = deck.data.format == DataFormat::chat || deck.data.format == DataFormat::synthetic;
  if (!has(loaded, {"objective", "kind"}) && has_answers) deck.objective.kind = ObjectiveKind::completion;
  if (deck.objective.kind == ObjectiveKind::dpo) {
    ObjectiveTable& objective = deck.objective;
    objective.loss = objective.loss.value_or(PreferenceKind::sigmoid);
    objective.beta = objective.beta.value_or(0.1);
    objective.label_smoothing = objective.label_smoothing.value_or(0);
    deck.data.truncation = deck.data.truncation.value_or(Truncation::keep_start);
    if (!has(loaded, {"batch", "micro_batch"})) deck.batch.micro_batch = 2;
  }
  if (deck.objective.kind == ObjectiveKind::grpo) {
    if (!deck.policy) deck.policy.emplace();
    // The sampler and the trainer agree to the bit.
    if (!has(loaded, {"precision", "batch_invariant"})) deck.precision.batch_invariant = true;
  }
  if (deck.adapter && !has(loaded, {"adapter", "seed"})) deck.adapter->seed = deck.run.seed;
  if (!has(loaded, {"batch", "sequences"}))
    deck.batch.sequences = deck.policy && !has(loaded, {"batch", "micro_batch"}) ? deck.policy->group_size
                                                                                 : deck.batch.micro_batch;
  if (!has(loaded, {"precision", "loss_scale"}) && deck.precision.storage == DType::f16)
    deck.precision.loss_scaling = LossScalingRule::dynamic;
  if (deck.model && deck.model->max_position_embeddings == 0 &&
      !has(loaded, {"model", "max_position_embeddings"}))
    deck.model->max_position_embeddings = deck.batch.seq_len;
}

}  // namespace

TrainDeck load_train_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, train_kind);
  Diagnostics diagnostics;
  TrainDeck below;
  below.model = configured_language_model(loaded, diagnostics);
  diagnostics.throw_if_any();
  auto deck = read_deck(loaded, source, diagnostics, std::move(below));
  fill_in_defaults(deck, loaded);
  check_train_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

std::string execution_space_of(const TrainRunTable& table, const std::vector<std::string>& built_spaces) {
  if (table.execution_space == "default") return built_spaces.front();
  require_built("run.execution_space", table.execution_space, built_spaces);
  return table.execution_space;
}

std::optional<std::uint64_t> MemoryTable::budget_bytes() const {
  if (budget.empty()) return {};
  return static_cast<std::uint64_t>(bytes_in(budget).value());
}

template <>
std::string describe_deck_markdown<TrainDeck>() {
  return deck_markdown<TrainDeck>();
}

template <>
std::string describe_deck_json_schema<TrainDeck>() {
  return deck_json_schema<TrainDeck>(train_kind, "A model learns from a data set.");
}

}  // namespace kformer
