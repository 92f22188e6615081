// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "decks/train/parallel_checks.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "language_model/cache_options.hpp"
#include "language_model/model_files.hpp"
#include "learner/data_parallel.hpp"
#include "learner/memory_policy.hpp"
#include "learner/sampler_options.hpp"
#include "measure/spaces.hpp"
#include "memory/memory_planner.hpp"

namespace kformer::drivers {

namespace {

/// Counts with the code that runs.
class DeckPlanner final : public MemoryPlanner {
 public:
  explicit DeckPlanner(const MemoryPlanDeck& deck) : m_deck(deck) {
    if (deck.weights) m_checkpoint = open_checkpoint(*deck.weights);
    m_config = llama_config(model());
    if (!deck.adapter) return;
    std::optional<LoraConfig> stored;
    if (!deck.adapter->path.empty()) stored = open_adapter(deck.adapter->path, m_config).lora();
    m_lora = lora_config(*deck.adapter, stored ? &*stored : nullptr);
  }

  const LanguageModelTable& model() const override {
    return m_checkpoint ? m_checkpoint->model() : *m_deck.model;
  }

  MemoryForecast forecast(const MemoryCase& point, std::optional<std::size_t> limit) override {
    return point.purpose == PlanPurpose::train ? training(point, limit)
                                               : counted(*generation(point), point.execution_space);
  }

 private:
  static MemoryForecast counted(const Ledger& ledger, const std::string& space) {
    MemoryForecast forecast;
    for (int c = 0; c < memory_classes; ++c)
      forecast.bytes[static_cast<std::size_t>(c)] = ledger.peak(static_cast<MemoryClass>(c));
    forecast.total = ledger.peak_total();
    forecast.bytes_in_space = ledger.peak_in(measure::memory_space_of(space));
    return forecast;
  }

  // What kformer-train would decide.
  MemoryForecast training(const MemoryCase& point, std::optional<std::size_t> limit) const {
    LearnerTask task;
    task.config = m_config;
    task.dtype = point.dtype;
    const ObjectiveKind objective = m_deck.objective.kind;
    // The search for the largest batch counts pairs, too.
    task.trainer.shape = {objective == ObjectiveKind::dpo ? whole(point.batch, 2) : point.batch, point.context};
    task.trainer.optimizer.states = m_deck.optimizer.states;
    task.trainer.optimizer.master = m_deck.optimizer.master == MasterWeights::f32;
    const PlanTrainingTable& t = m_deck.training;
    task.trainer.layer.packed = t.packing == Packing::best_fit;
    task.trainer.layer.compute = t.compute;
    task.trainer.layer.batch_invariant = m_deck.plan.batch_invariant;
    task.trainer.layer.accumulate = t.accumulate || sequences(point) > point.batch;
    task.trainer.layer.lora = m_lora;
    task.logits = t.samples;
    task.saves_weights = t.model;
    if (t.checkpoint) task.checkpoints.emplace();
    if (m_deck.parallel)
      if (const auto fault = Impl::schema::undivided_extent(*m_deck.parallel, model()); !fault.empty())
        throw NotSupported("kformer-memory: " + fault);
    FrozenWeights frozen =
        frozen_weights(m_checkpoint ? &*m_checkpoint : nullptr, m_config, point.weights,
                       m_deck.adapter && m_deck.weights && m_deck.weights->keep_quantized, point.dtype);
    task.trainer.layer.formats = std::move(frozen.formats);
    task.staging_bytes = frozen.staging_bytes;
    if (objective == ObjectiveKind::grpo) {
      require_dense_sampler(task.trainer.layer.formats);
      task.sampler = sampler_options(*m_deck.policy, sequences(point), longest_prompt(point));
    }
    const std::int64_t batches = (sequences(point) + point.batch - 1) / point.batch;
    const MemoryDecision decision = of_largest_stage(
        m_deck.parallel ? &*m_deck.parallel : nullptr, batches, task, [&](const LearnerTask& shared) {
          return forecast_memory(point.execution_space, shared, point.recompute, limit);
        });
    MemoryForecast forecast = counted(*decision.forecast, point.execution_space);
    forecast.schedule = schedule_text(decision.schedule);
    forecast.recompute_share = decision.extra_seconds / micro_batch_seconds(task, rates_to_compare);
    return forecast;
  }

  // The least multiple of `part` that is not less.
  static std::int64_t whole(std::int64_t count, std::int64_t part) { return (count + part - 1) / part * part; }

  // Of a step.
  std::int64_t sequences(const MemoryCase& point) const {
    if (const std::int64_t wanted = m_deck.training.sequences; wanted > 0) {
      if (wanted < point.batch)
        throw NotSupported(fmt::format("kformer-memory: training.sequences = {} is less than the batch, {}",
                                       wanted, point.batch));
      return wanted;
    }
    return m_deck.policy ? whole(point.batch, m_deck.policy->group_size) : point.batch;
  }

  std::int64_t longest_prompt(const MemoryCase& point) const {
    const PlanPolicyTable& policy = *m_deck.policy;
    const std::int64_t room = point.context - policy.max_new_tokens;
    if (room < std::max<std::int64_t>(1, policy.longest_prompt))
      throw NotSupported(
          fmt::format("kformer-memory: policy.max_new_tokens = {} leaves room for a prompt of {} tokens in a "
                      "context of {}, but the longest has {}",
                      policy.max_new_tokens, std::max<std::int64_t>(0, room), point.context,
                      std::max<std::int64_t>(1, policy.longest_prompt)));
    return policy.longest_prompt > 0 ? policy.longest_prompt : room;
  }

  std::shared_ptr<const Ledger> generation(const MemoryCase& point) const {
    EngineTask task;
    task.config = m_config;
    task.dtype = point.dtype;
    task.generator = {
        .batch = point.batch,
        .prefill_chunk = point.prefill_chunk > 0 ? std::min(point.prefill_chunk, point.context) : point.context,
        .recompute = point.kv_cache == KvCacheKind::none};
    task.decoder = {.max_rows = std::max(task.generator.prefill_chunk, point.batch),
                    .max_logit_rows = point.batch,
                    .max_positions = point.context,
                    .formats = formats(point.weights),
                    .activations = m_deck.plan.activations,
                    .batch_invariant = m_deck.plan.batch_invariant};
    task.decoder.adapters.assign(static_cast<std::size_t>(m_deck.plan.live_adapters), m_lora);
    task.cache = cache_options(point.kv_cache, m_deck.plan.cache, task);
    if (m_checkpoint) task.staging_bytes = staging_bytes(*m_checkpoint, task.decoder.formats);
    return forecast_of(point.execution_space, task);
  }

  WeightFormats formats(WeightStorage storage) const {
    if (const auto format = format_of(storage)) {
      WeightFormats all;
      for (const auto& [name, shape] : model_tensor_shapes(model()))
        if (shape.size() == 2) all[name] = *format;
      return all;
    }
    return m_checkpoint && m_deck.weights->keep_quantized ? quantized_weights(*m_checkpoint) : WeightFormats();
  }

  const MemoryPlanDeck& m_deck;
  std::optional<Checkpoint> m_checkpoint;
  LlamaConfig m_config;
  LoraConfig m_lora;
};

}  // namespace

std::unique_ptr<MemoryPlanner> make_memory_planner(const MemoryPlanDeck& deck) {
  return std::make_unique<DeckPlanner>(deck);
}

}  // namespace kformer::drivers
