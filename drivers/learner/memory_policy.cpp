// SPDX-License-Identifier: MIT
#include "learner/memory_policy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kformer/memory/planner.hpp"
#include "kformer/parallel/pipeline_links.hpp"
#include "measure/spaces.hpp"

namespace kformer::drivers {

namespace {

// Forecasts of one training under different schedules.
class Forecasts {
 public:
  Forecasts(std::string space, std::vector<LearnerTask> ranks)
      : m_space(std::move(space)), m_ranks(std::move(ranks)) {}

  // Of the rank that needs most. A limit is for the memory of the execution space.
  MemoryDecision decision(const RecomputeSchedule& schedule, double seconds) {
    MemoryDecision most;
    for (LearnerTask& rank : m_ranks) {
      rank.trainer.recompute = schedule;
      auto forecast = forecast_of(m_space, rank);
      const std::size_t bytes = forecast->peak_in(measure::memory_space_of(m_space));
      if (most.forecast == nullptr || bytes > most.bytes_in_space)
        most = {schedule, std::move(forecast), bytes, seconds};
    }
    return most;
  }
  // Ranks of a pipeline walk through their own layers, and need the input of each.
  RecomputeCosts costs() const {
    RecomputeCosts costs = recompute_costs_of(m_space, m_ranks.front(), rates_to_compare);
    const PipelineOptions& p = m_ranks.front().trainer.pipeline;
    if (!p.ranks) return costs;
    costs.nested = costs.offload = false;
    costs.rerun = !splits_backward(p.schedule);
    return costs;
  }
  std::int64_t layers() const { return m_ranks.front().config.num_hidden_layers; }

 private:
  std::string m_space;
  std::vector<LearnerTask> m_ranks;
};

[[noreturn]] void refuse(const MemoryDecision& decision, std::size_t limit, Recompute recompute) {
  const char* policy = recompute == Recompute::automatic
                           ? "no policy of recomputation needs less"
                           : "memory.recompute = \"auto\" looks for a schedule that fits";
  throw OutOfMemory(fmt::format(
      "kformer-train: training needs {} ({}) but the limit is {}; {}; to save memory, reduce "
      "batch.micro_batch or batch.seq_len, or set optimizer.states = \"int8\"",
      format_bytes(decision.bytes_in_space), bytes_by_class(*decision.forecast), format_bytes(limit), policy));
}

MemoryDecision cheapest(Forecasts& forecasts, std::size_t limit, const PlanAgreement& agree) {
  const auto front = recompute_front(forecasts.layers(), forecasts.costs());
  const auto decision = [&](const RecomputePlan& plan) {
    return forecasts.decision(plan.schedule, plan.seconds);
  };
  // Bytes of a plan are those of the layers alone; the forecast has the last word. Both ascend along the front.
  const auto above = std::ranges::partition_point(
      front, [&](const RecomputePlan& plan) { return decision(plan).bytes_in_space <= limit; });
  const auto own = static_cast<std::size_t>(above == front.begin() ? 0 : above - front.begin() - 1);
  return decision(front[agree ? agree(own) : own]);
}

}  // namespace

void require_policy(const std::string& space, Recompute recompute) {
  if (recompute == Recompute::offload && measure::runs_on_host(space))
    throw NotSupported(
        fmt::format("kformer-train: memory.recompute = \"offload\" moves inputs of layers to host memory, but "
                    "execution_space = \"{}\" computes there already; choose \"layer\" or \"nested\"",
                    space));
}

MemoryDecision forecast_memory(const std::string& space, std::vector<LearnerTask> ranks, Recompute recompute,
                               std::optional<std::size_t> limit, const PlanAgreement& agree) {
  Forecasts forecasts(space, std::move(ranks));
  if (recompute == Recompute::automatic && limit) return cheapest(forecasts, *limit, agree);
  if (recompute == Recompute::automatic) recompute = Recompute::none;
  const auto schedule = RecomputeSchedule::uniform(recompute, forecasts.layers());
  return forecasts.decision(schedule, recompute_seconds(schedule, forecasts.costs()));
}

MemoryDecision decide_memory(const std::string& space, std::vector<LearnerTask> ranks, Recompute recompute,
                             std::optional<std::size_t> limit, const PlanAgreement& agree) {
  MemoryDecision decision = forecast_memory(space, std::move(ranks), recompute, limit, agree);
  if (limit && decision.bytes_in_space > *limit) refuse(decision, *limit, recompute);
  return decision;
}

double recompute_time(const std::string& space, const LearnerTask& task, const RecomputeSchedule& schedule,
                      const MachineRates& rates) {
  return recompute_seconds(schedule, recompute_costs_of(space, task, rates));
}

double micro_batch_seconds(const LearnerTask& task, const MachineRates& rates) {
  const LlamaConfig& config = task.config;
  const LayerShape shape = task.trainer.shape;
  const bool causal = task.trainer.layer.causal;
  const double layer = layer_flops(config, shape, false, causal) + layer_flops(config, shape, true, causal);
  const LayerOptions& options = task.trainer.layer;
  const double words = static_cast<double>(config.hidden_size) * static_cast<double>(config.vocab_size),
               embeddings = config.tie_word_embeddings ? words : 2 * words,
               matrices = static_cast<double>(config.model_parameter_count()) - embeddings;
  double operations =
      static_cast<double>(config.num_hidden_layers) * layer + 6 * static_cast<double>(shape.rows()) * words;
  // Frozen matrices have no gradients.
  if (options.lora.any()) operations -= 2 * static_cast<double>(shape.rows()) * (matrices + words);
  const auto& stages = task.trainer.pipeline.ranks;
  const double ranks = (options.tensor ? options.tensor->size() : 1) *
                       (options.context ? options.context->size() : 1) * (stages ? stages->ranks()->size() : 1);
  return operations / (rates.flops * ranks);
}

std::string schedule_text(const RecomputeSchedule& schedule) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (schedule.nested_layers > 0)
    add(fmt::format("{} layers nested ({} inputs kept)", schedule.nested_layers, schedule.nested_slots));
  for (std::size_t i = 0; i < names_of<Recompute>.size(); ++i) {
    const auto kind = static_cast<Recompute>(i);
    if (const auto count = std::ranges::count(schedule.kinds, kind); count > 0)
      add(fmt::format("{} layers {}", count, name_of(kind)));
  }
  return text;
}

std::string bytes_by_class(const Ledger& ledger) {
  std::string text;
  for (int c = 0; c < memory_classes; ++c)
    if (const std::size_t bytes = ledger.peak(static_cast<MemoryClass>(c)); bytes > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(static_cast<MemoryClass>(c)),
                          format_bytes(bytes));
  return text;
}

}  // namespace kformer::drivers
