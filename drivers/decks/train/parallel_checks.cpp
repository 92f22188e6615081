// SPDX-License-Identifier: MIT
#include "decks/train/parallel_checks.hpp"

#include <fmt/format.h>

#include <string_view>
#include <tuple>
#include <utility>

#include "decks/sweep/sweep_checks.hpp"
#include "kformer/parallel/leaf_shares.hpp"

namespace kformer::Impl::schema {

std::optional<ParallelFault> objective_fault(const PlanParallelTable& table, ObjectiveKind kind) {
  const bool samples = kind == ObjectiveKind::grpo;
  if (kind != ObjectiveKind::dpo && !samples) return {};
  for (const auto& [key, ranks] : {std::pair{"context", table.context},
                                   {"pipeline", table.pipeline},
                                   {"tensor", samples ? table.tensor : 1}})
    if (ranks > 1)
      return ParallelFault{
          key, fmt::format("'parallel.{}' = {} is not for 'objective.kind' = \"{}\", {}; set it to 1", key,
                           ranks, name_of(kind),
                           samples ? "whose completions are sampled by whole models"
                                   : "whose log-probabilities are of whole sequences and models")};
  return {};
}

std::optional<ParallelFault> share_fault(const PlanParallelTable& table, const StepKeys& step) {
  const std::int64_t micro_batches =
      (step.sequences_of_step + step.sequences_of_micro_batch - 1) / step.sequences_of_micro_batch;
  const LeafShares shares{micro_batches, static_cast<int>(table.data), table.zero == 2};
  const std::int64_t each = shares.each();
  const std::string text =
      fmt::format("a step has {} micro-batches ('{}' = {}, '{}' = {})", micro_batches, step.sequences,
                  step.sequences_of_step, step.batch, step.sequences_of_micro_batch);
  if (shares.count(shares.ranks - 1) == 0)
    return ParallelFault{
        "data",
        fmt::format("'parallel.data' = {} ranks cannot share a step: {}, and with {} on each some ranks "
                    "have none; {} ranks can, or change {}",
                    table.data, text, each, (micro_batches + each - 1) / each, step.change)};
  if (table.order != SumOrder::fixed || shares.keep_order()) return {};
  return ParallelFault{
      "order",
      shares.in_turns
          ? fmt::format("'parallel.order' = \"fixed\" with 'parallel.zero' = 2 needs a power of two of ranks, "
                        "each with as many micro-batches, not {} ranks: {}; change 'parallel.data' or {}",
                        table.data, text, step.change)
          : fmt::format("'parallel.order' = \"fixed\" needs a power of two of micro-batches on each rank, "
                        "not {}: {}; change 'parallel.data' or {}",
                        each, text, step.change)};
}

std::string parts_fault(const char* table, PipelineSchedule schedule, std::int64_t parts) {
  const bool interleaved = schedule == PipelineSchedule::interleaved;
  if (parts > 1 && !interleaved)
    return fmt::format("'{}.parts' = {} needs '{}.schedule' = \"interleaved\"", table, parts, table);
  if (parts == 1 && interleaved)
    return fmt::format("'{}.schedule' = \"interleaved\" needs '{}.parts' > 1", table, table);
  return {};
}

namespace {

void check_pipeline(const PlanParallelTable& table, Recompute recompute, const LoadedDeck& loaded,
                    Diagnostics& diagnostics) {
  const auto error = [&](const char* key, std::string sentence) {
    diagnostics.error(place_of(loaded, {"parallel", key}), std::move(sentence));
  };
  std::string parts = parts_fault("parallel", table.schedule, table.parts);
  // Without a pipeline a schedule alone is what is wrong.
  if (!parts.empty() && (table.parts > 1 || table.pipeline > 1)) return error("parts", std::move(parts));
  if (table.pipeline == 1) {
    if (table.schedule != PipelineSchedule::one_forward_one_backward)
      error("schedule",
            fmt::format("'parallel.schedule' = \"{}\" needs 'parallel.pipeline' > 1", name_of(table.schedule)));
    return;
  }
  const auto fault = [&](const std::string& what) {
    error("pipeline", fmt::format("'parallel.pipeline' = {} is not for {}", table.pipeline, what));
  };
  if (table.overlap)
    return fault("'parallel.overlap': its gradients are reduced at the end of a step; remove it");
  if (recompute == Recompute::nested || recompute == Recompute::offload)
    return fault(
        fmt::format("recompute = \"{}\", which goes through all layers; take \"layer\"", name_of(recompute)));
  if (table.schedule == PipelineSchedule::zero_bubble && recompute == Recompute::layer)
    fault(
        "recompute = \"layer\" with the schedule zero_bubble, which needs what layers keep twice; take "
        "\"pointwise\"");
}

// Of [parallel], which the sentence begins with.
std::string key_of(const std::string& sentence) {
  const std::size_t begin = std::string_view("'parallel.").size();
  return sentence.substr(begin, sentence.find('\'', begin) - begin);
}

}  // namespace

void check_divided(const PlanParallelTable& table, Recompute recompute,
                   const std::optional<LanguageModelTable>& model, const LoadedDeck& loaded,
                   Diagnostics& diagnostics) {
  const auto error = [&](const char* key, std::string sentence) {
    diagnostics.error(place_of(loaded, {"parallel", key}), std::move(sentence));
  };
  const auto fault = [&](const char* key, std::int64_t ranks, const char* what) {
    error(key, fmt::format("'parallel.{}' = {} is not for {}; remove one", key, ranks, what));
  };
  if (table.context > 1 && table.order == SumOrder::fixed)
    return fault("context", table.context, "'parallel.order' = \"fixed\", which adds up whole micro-batches");
  if (table.context_exchange == ContextExchange::ring && table.context == 1)
    return error("context_exchange", "'parallel.context_exchange' = \"ring\" needs 'parallel.context' > 1");
  if (table.sequence && table.tensor == 1)
    return error("sequence", "'parallel.sequence' needs 'parallel.tensor' > 1");
  check_pipeline(table, recompute, loaded, diagnostics);
  if (!model) return;
  if (const std::string extent = undivided_extent(table, *model); !extent.empty())
    error(key_of(extent).c_str(), extent);
}

void warn_of_one_rank(const PlanParallelTable& table, const LoadedDeck& loaded,
                      std::vector<std::string>& warnings) {
  if (table.data != 1 || table.context != 1) return;
  for (const auto& [key, given, what] :
       {std::tuple{"zero", table.zero > 0, "divides"}, {"overlap", table.overlap, "sends"}})
    if (given)
      warnings.push_back(
          fmt::format("{}: warning: 'parallel.{}' {} nothing with one rank: 'parallel.data' and "
                      "'parallel.context' are 1",
                      to_string(place_of(loaded, {"parallel", key})), key, what));
}

std::string undivided_extent(const PlanParallelTable& table, const LanguageModelTable& model) {
  for (const auto& [key, extent] : {std::pair{"num_attention_heads", model.num_attention_heads},
                                    {"num_key_value_heads", model.num_key_value_heads},
                                    {"intermediate_size", model.intermediate_size}})
    if (extent % table.tensor != 0)
      return fmt::format(
          "'parallel.tensor' = {} ranks do not divide '{}' = {} of the model; take a number that does",
          table.tensor, key, extent);
  if (model.vocab_size < table.tensor)
    return fmt::format("'parallel.tensor' = {} ranks do not divide 'vocab_size' = {} of the model",
                       table.tensor, model.vocab_size);
  if (model.num_hidden_layers < table.pipeline * table.parts)
    return fmt::format(
        "'parallel.pipeline' = {} ranks with {} {} of the model each need as many layers, but "
        "'num_hidden_layers' = {}",
        table.pipeline, table.parts, table.parts == 1 ? "part" : "parts", model.num_hidden_layers);
  if (table.context > 1 && table.context_exchange == ContextExchange::ring && model.sliding_window > 0)
    return fmt::format(
        "'parallel.context_exchange' = \"ring\" is not for 'sliding_window' = {} of the model: a window lies "
        "across the parts of a ring; take \"all_gather\"",
        model.sliding_window);
  return {};
}

}  // namespace kformer::Impl::schema
