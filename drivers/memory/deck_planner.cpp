// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "app/memory/scratch.hpp"
#include "decks/train/parallel_checks.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/parallel/leaf_shares.hpp"
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
    if (point.purpose == PlanPurpose::train) return training(point, limit);
    return counted(*generation(point), point, formats(point.weights));
  }

  // Ranks that divide the tokens have two chunks each; a prompt needs room before its completion.
  AxisRange contexts(const MemoryCase& point) const override {
    AxisRange range;
    if (point.purpose != PlanPurpose::train) return range;
    if (m_deck.parallel && m_deck.parallel->context > 1) range.step = 2 * m_deck.parallel->context;
    if (m_deck.objective.kind == ObjectiveKind::grpo)
      range.least = m_deck.policy->max_new_tokens + shortest_room();
    return range;
  }

  std::vector<GridForecast> grids(const MemoryCase& point, std::optional<std::size_t> limit) override {
    const LearnerTask task = task_of(point);
    const std::int64_t ranks = m_deck.grids->ranks;
    const auto fits = [&](const GridForecast& g) { return !limit || g.bytes <= *limit; };
    const auto is_better = [&](const GridForecast& a, const GridForecast& b) {
      if (fits(a) != fits(b)) return fits(a);
      return fits(a) ? a.seconds.total() < b.seconds.total() : a.bytes < b.bytes;
    };
    std::vector<GridForecast> all;
    // Of the ways in which keys and values can reach other ranks, the better one.
    const auto add = [&](PlanParallelTable grid) {
      std::optional<GridForecast> best;
      for (const ContextExchange exchange : exchanges_of(grid)) {
        grid.context_exchange = exchange;
        const auto forecast = forecast_of_grid(point, task, grid, limit);
        if (forecast && (!best || is_better(*forecast, *best))) best = forecast;
      }
      if (best) all.push_back(*best);
    };
    const auto divisors_of = [](std::int64_t n) {
      std::vector<std::int64_t> divisors;
      for (std::int64_t d = 1; d <= n; ++d)
        if (n % d == 0) divisors.push_back(d);
      return divisors;
    };
    for (const std::int64_t tensor : divisors_of(ranks))
      for (const std::int64_t context : divisors_of(ranks / tensor))
        for (const std::int64_t pipeline : divisors_of(ranks / tensor / context)) {
          PlanParallelTable grid = m_deck.parallel.value_or(PlanParallelTable());
          grid.data = ranks / tensor / context / pipeline;
          grid.context = context;
          grid.tensor = tensor;
          grid.sequence &= tensor > 1;
          grid.pipeline = pipeline;
          if (pipeline == 1) {
            grid.schedule = PipelineSchedule::one_forward_one_backward;
            grid.parts = 1;
          }
          for (grid.zero = 0; grid.zero <= (grid.data * context > 1 ? 2 : 0); ++grid.zero) add(grid);
        }
    std::ranges::stable_sort(all, is_better);
    return all;
  }

 private:
  // A ring that the deck asks for is kept.
  static std::vector<ContextExchange> exchanges_of(const PlanParallelTable& grid) {
    if (grid.context == 1) return {ContextExchange::all_gather};
    if (grid.context_exchange == ContextExchange::ring) return {ContextExchange::ring};
    return {ContextExchange::all_gather, ContextExchange::ring};
  }

  MemoryForecast counted(const Ledger& ledger, const MemoryCase& point, const WeightFormats& formats) const {
    const std::string& space = point.execution_space;
    MemoryForecast forecast;
    for (int c = 0; c < memory_classes; ++c)
      forecast.bytes[static_cast<std::size_t>(c)] = ledger.peak(static_cast<MemoryClass>(c));
    forecast.total = ledger.peak_total();
    forecast.bytes_in_space = ledger.peak_in(measure::memory_space_of(space));
    forecast.scratch = forecast_scratch(space, scratch_per_thread(m_config, !formats.empty()));
    return forecast;
  }

  // What kformer-train would learn with, on one rank.
  LearnerTask task_of(const MemoryCase& point) const {
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
    FrozenWeights frozen =
        frozen_weights(m_checkpoint ? &*m_checkpoint : nullptr, m_config, point.weights,
                       m_deck.adapter && m_deck.weights && m_deck.weights->keep_quantized, point.dtype);
    task.trainer.layer.formats = std::move(frozen.formats);
    task.staging_bytes = frozen.staging_bytes;
    if (objective != ObjectiveKind::grpo) return task;
    task.sampler = sampler_options(*m_deck.policy, sequences(point), longest_prompt(point));
    task.reference = m_deck.policy->keeps_first_weights(m_deck.adapter.has_value());
    return task;
  }

  // What kformer-train would decide.
  MemoryForecast training(const MemoryCase& point, std::optional<std::size_t> limit) const {
    const LearnerTask task = task_of(point);
    const MemoryDecision decision =
        decision_of(point, task, m_deck.parallel ? &*m_deck.parallel : nullptr, limit);
    MemoryForecast forecast = counted(*decision.forecast, point, task.trainer.layer.formats);
    forecast.schedule = schedule_text(decision.schedule);
    // Ranks that divide the model or its tokens divide both.
    const PlanParallelTable grid = m_deck.parallel.value_or(PlanParallelTable());
    forecast.recompute_share = decision.extra_seconds *
                               static_cast<double>(grid.context * grid.tensor * grid.pipeline) /
                               micro_batch_seconds(task, rates_to_compare);
    return forecast;
  }

  MemoryDecision decision_of(const MemoryCase& point, const LearnerTask& task, const PlanParallelTable* table,
                             std::optional<std::size_t> limit) const {
    if (table != nullptr) require_divided(*table);
    return of_largest_rank(table, micro_batches(point), task, [&](std::vector<LearnerTask> ranks) {
      return forecast_memory(point.execution_space, std::move(ranks), point.recompute, limit);
    });
  }

  // Of a step.
  std::int64_t micro_batches(const MemoryCase& point) const {
    return (sequences(point) + point.batch - 1) / point.batch;
  }

  std::optional<GridForecast> forecast_of_grid(const MemoryCase& point, const LearnerTask& task,
                                               const PlanParallelTable& grid,
                                               std::optional<std::size_t> limit) const {
    const LeafShares shares{micro_batches(point), static_cast<int>(grid.data), grid.zero == 2};
    if (Impl::schema::objective_fault(grid, m_deck.objective.kind)) return {};
    const bool idle = shares.count(shares.ranks - 1) == 0;
    const bool disorder = grid.order == SumOrder::fixed && !shares.keep_order();
    const bool divided = grid.context == 1 || point.context % (2 * grid.context) == 0;
    if (idle || disorder || !divided) return {};
    try {
      const MemoryDecision decision = decision_of(point, task, &grid, limit);
      LearnerTask shared = task;
      share_among(grid_of(std::make_shared<LoneCommunicator>(), &grid), grid, micro_batches(point), shared);
      const PlanGridsTable& machine = *m_deck.grids;
      const MachineRates rates{
          .flops = machine.flop_rate,
          .bytes = rates_to_compare.bytes * machine.flop_rate / rates_to_compare.flops,
          .transfers = rates_to_compare.transfers * machine.flop_rate / rates_to_compare.flops};
      const double seconds = micro_batch_seconds(shared, rates) +
                             recompute_time(point.execution_space, shared, decision.schedule, rates);
      const GridTask of_step{.config = m_config,
                             .trained = m_deck.adapter ? adapter_parameter_count(m_config, m_lora)
                                                       : m_config.model_parameter_count(),
                             .whole = whole_adapter_parameter_count(m_config, m_lora),
                             .lora = m_lora,
                             .shape = task.trainer.shape,
                             .micro_batches = shares.each(),
                             .dtype = task.dtype,
                             .recomputes = std::ranges::count(decision.schedule.kinds, Recompute::layer) * 2 >
                                           m_config.num_hidden_layers,
                             .grid = grid};
      return GridForecast{grid, decision.bytes_in_space, bytes_of_step(of_step),
                          seconds_of_step(of_step, seconds, machine)};
    } catch (const FileError&) {
      throw;
    } catch (const Error&) {  // not this one
      return {};
    }
  }

  void require_divided(const PlanParallelTable& table) const {
    drivers::require_divided(table, model(), m_checkpoint ? &*m_checkpoint : nullptr, "kformer-memory");
  }

  // Those of a generation, of which the last one needs most; null without.
  std::shared_ptr<Communicator> tensor_ranks() const {
    if (!m_deck.parallel) return nullptr;
    const PlanParallelTable& table = *m_deck.parallel;
    if (table.ranks() != table.tensor)
      throw NotSupported(
          "kformer-memory: of [parallel], a generation has `tensor` alone; remove the other keys");
    require_divided(table);
    const int size = static_cast<int>(table.tensor);
    return size > 1 ? std::make_shared<LoneCommunicator>(size - 1, size) : nullptr;
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

  // For the longest prompt, before its completion.
  std::int64_t shortest_room() const { return std::max<std::int64_t>(1, m_deck.policy->longest_prompt); }

  std::int64_t longest_prompt(const MemoryCase& point) const {
    const PlanPolicyTable& policy = *m_deck.policy;
    const std::int64_t room = point.context - policy.max_new_tokens;
    if (room < shortest_room())
      throw NotSupported(
          fmt::format("kformer-memory: policy.max_new_tokens = {} leaves room for a prompt of {} tokens in a "
                      "context of {}, but the longest has {}",
                      policy.max_new_tokens, std::max<std::int64_t>(0, room), point.context, shortest_room()));
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
    task.decoder.tensor = tensor_ranks();
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
