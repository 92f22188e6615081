// SPDX-License-Identifier: MIT
#include "scaling/scaling_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "app/communication.hpp"
#include "kformer/load/llama_config.hpp"
#include "learner/data_parallel.hpp"
#include "measure/fill.hpp"
#include "measure/kernel_names.hpp"
#include "measure/memory_available.hpp"
#include "scaling/simulated_machine.hpp"
#include "scaling/timing.hpp"
#include "scaling/workload.hpp"

namespace kformer::drivers {

namespace {

using nlohmann::json;

std::int64_t micro_batches_of(const ScalingDeck& deck, const PlanParallelTable& grid) {
  return sequences_of(deck, grid) / (grid.data * deck.batch.micro_batch);
}

using CallCounts = std::map<std::pair<std::string, std::string>, CommunicationCount>;

// By operation and region.
CallCounts counts_of(const RankGrid& grid) {
  CallCounts counts;
  for (const CommunicationCount& c : communication_of(grid)) {
    CommunicationCount& sum = counts[{c.operation, c.region}];
    sum.calls += c.calls;
    sum.bytes += c.bytes;
    sum.seconds += c.seconds;
  }
  return counts;
}

// What was sent since `before`, and what the formulae say of `steps` steps.
json communication_rows(const CallCounts& before, const CallCounts& now, const std::vector<Calls>& expected,
                        std::int64_t steps) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> formula;
  for (const Calls& c : expected)
    formula[{c.operation, c.region}] += static_cast<std::uint64_t>(steps) * c.bytes;
  auto rows = json::array();
  const auto add = [&](const auto& name, const CommunicationCount& c, const CommunicationCount& earlier) {
    const std::uint64_t expects = formula.contains(name) ? formula[name] : 0;
    formula.erase(name);
    if (c.bytes > earlier.bytes || expects > 0)
      rows.push_back({name.first, name.second, c.calls - earlier.calls, c.bytes - earlier.bytes,
                      c.seconds - earlier.seconds, expects});
  };
  for (const auto& [name, count] : now)
    add(name, count, before.contains(name) ? before.at(name) : CommunicationCount());
  for (const auto& [name, bytes] : std::map(formula)) add(name, {}, {});
  return rows;
}

// Makes as many subsets as the ranks of a grid do, which ranks that wait must (Communicator::subset).
void keep_pace(const std::shared_ptr<Communicator>& waiting, const PlanParallelTable& grid) {
  const RankGrid own(waiting, {.data = waiting->size()});
  // The replicas of a grid that divides tokens have a communicator of their own.
  const int rank = waiting->rank();
  if (grid.context > 1) waiting->subset(std::span(&rank, 1), "waiting");
}

}  // namespace

ScalingRun::ScalingRun(const ScalingDeck& deck, std::string space, Ranks& ranks)
    : m_deck(deck), m_space(std::move(space)), m_ranks(ranks), m_config(llama_config(*deck.model)) {}

std::string ScalingRun::refusal(const PlanParallelTable& grid) const {
  if (grid.ranks() > m_ranks.size())
    return fmt::format("the grid needs {} ranks, but {} {} started; run mpiexec -n {} kformer-scaling …",
                       grid.ranks(), m_ranks.size(), m_ranks.size() == 1 ? "was" : "were", grid.ranks());
  return undivided(m_deck, grid);
}

GridResult ScalingRun::run(const PlanParallelTable& grid) {
  GridResult result{.grid = grid};
  Measurement& m = result.measurement;
  m.message = refusal(grid);
  m.status = m.message.empty() ? CaseStatus::ok : CaseStatus::unsupported;
  if (!m.message.empty()) return result;
  // Each rank makes the call, those that wait with a group of their own.
  const bool takes_part = m_ranks.rank() < grid.ranks();
  std::vector<int> members(static_cast<std::size_t>(takes_part ? grid.ranks() : m_ranks.size() - grid.ranks()));
  std::iota(members.begin(), members.end(), takes_part ? 0 : static_cast<int>(grid.ranks()));
  const std::shared_ptr<Communicator> team = m_ranks.world()->subset(members, "grid");
  std::string own;
  if (takes_part)
    own = timed(grid, team);
  else
    keep_pace(team, grid);
  std::int64_t rank = 0;
  for (const std::string& text : m_ranks.gather_text(own, "the results of a grid")) {
    if (text.empty()) continue;
    const json report = json::parse(text);
    if (report.contains("message")) {
      m.message = report["message"];
      m.status = CaseStatus::skipped_memory;
      return result;
    }
    result.memory.push_back({report["predicted"], report["peak"]});
    for (const json& row : report["communication"])
      result.communication.push_back({{row[0], row[1], row[2], row[3], row[4]}, rank, row[5]});
    if (rank++ > 0) continue;
    m.samples.seconds = report["samples"].get<std::vector<double>>();
    m.samples.inner_iterations = report["inner"];
    m.kernels = report["kernels"];
    result.tokens = report["tokens"];
    result.calls = report["calls"];
    if (!report.contains("times")) continue;
    Simulation s;
    const RankGrid lone = grid_of(std::make_shared<LoneCommunicator>(), &grid);
    s.step = shape_of(grid, lone, task_of(grid, lone));
    const auto times = report["times"].get<std::vector<double>>(),
               links = report["links"].get<std::vector<double>>();
    s.times = {times[0], times[1], times[2], times[3]};
    for (std::size_t i = 0; i < s.links.size(); ++i)
      s.links[i] = {links[3 * i], links[3 * i + 1], links[3 * i + 2]};
    s.cores = report["cores"];
    const SimulatedTime time = simulate(step_program(s.step, s.times, s.links, s.cores));
    s.seconds = time.seconds;
    s.computed = time.computed.front();
    result.simulation = s;
  }
  for (const RankMemory& memory : result.memory) {
    m.predicted = std::max<std::size_t>(m.predicted, memory.predicted);
    m.peak_total = std::max<std::size_t>(m.peak_total, memory.peak);
  }
  for (const RankCalls& c : result.communication)
    if (c.bytes != c.expected_bytes && m.status == CaseStatus::ok) {
      m.status = CaseStatus::failed_check;
      m.message = fmt::format("rank {} sent {} bytes in {} of {}, but the formula says {}", c.rank, c.bytes,
                              c.operation, c.region, c.expected_bytes);
    }
  return result;
}

GridResult ScalingRun::simulated(const PlanParallelTable& grid) const {
  GridResult result{.grid = grid};
  Measurement& m = result.measurement;
  m.message = undivided(m_deck, grid);
  m.status = m.message.empty() ? CaseStatus::ok : CaseStatus::unsupported;
  if (!m.message.empty()) return result;
  const RankGrid lone = grid_of(std::make_shared<LoneCommunicator>(), &grid);
  const LearnerTask task = task_of(grid, lone);
  Simulation s;
  s.step = shape_of(grid, lone, task);
  s.times = kernel_times_on(*m_deck.machine, s.step);
  s.links = links_on(*m_deck.machine, s.step.grid);
  const SimulatedTime time = simulate(step_program(s.step, s.times, s.links, 0));
  s.seconds = time.seconds;
  s.computed = time.computed.front();
  result.tokens = sequences_of(m_deck, grid) * m_deck.batch.seq_len;
  m.predicted = forecast_of(m_space, task)->peak_total();
  result.simulation = s;
  return result;
}

LearnerTask ScalingRun::task_of(const PlanParallelTable& grid, const RankGrid& ranks) const {
  LearnerTask task;
  task.config = m_config;
  task.dtype = m_deck.precision.storage;
  task.trainer.shape = {m_deck.batch.micro_batch, m_deck.batch.seq_len};
  const std::int64_t batches = sequences_of(m_deck, grid) / m_deck.batch.micro_batch;
  task.trainer.layer.accumulate = batches > 1;
  PlanParallelTable table = grid;
  table.zero = m_deck.sweep.zero;
  share_among(ranks, table, batches, task);
  return task;
}

// What a rank along `tensor` computes, as a model of its own.
LearnerTask ScalingRun::lone_task(const PlanParallelTable& grid) const {
  LearnerTask task;
  task.config = m_config;
  task.config.num_attention_heads /= grid.tensor;
  task.config.num_key_value_heads /= grid.tensor;
  task.config.intermediate_size /= grid.tensor;
  task.config.vocab_size = (task.config.vocab_size + grid.tensor - 1) / grid.tensor;
  task.dtype = m_deck.precision.storage;
  task.trainer.shape = {m_deck.batch.micro_batch, m_deck.batch.seq_len};
  task.trainer.layer.accumulate = true;
  return task;
}

StepShape ScalingRun::shape_of(const PlanParallelTable& grid, const RankGrid& ranks,
                               const LearnerTask& task) const {
  const std::size_t stored = size_of(task.dtype);
  return {.config = m_config,
          .micro_batch = task.trainer.shape,
          .micro_batches = micro_batches_of(m_deck, grid),
          .grid = ranks.shape(),
          .place = ranks.place(),
          .zero = static_cast<int>(m_deck.sweep.zero),
          .stored_bytes = stored,
          .computed_bytes = std::max(stored, sizeof(float)),
          .arrays = trained_arrays(m_space, task)};
}

std::vector<TokenSequence> ScalingRun::sequences(std::int64_t count) const {
  std::vector<TokenSequence> all(static_cast<std::size_t>(count));
  std::uint64_t number = static_cast<std::uint64_t>(m_deck.run.seed);
  const auto token = [&] {
    return static_cast<std::int32_t>(measure::mix(++number) % static_cast<std::uint64_t>(m_config.vocab_size));
  };
  for (TokenSequence& sequence : all)
    for (std::int64_t t = 0; t < m_deck.batch.seq_len; ++t) {
      sequence.ids.push_back(token());
      sequence.targets.push_back(token());
    }
  return all;
}

std::string ScalingRun::timed(const PlanParallelTable& grid, const std::shared_ptr<Communicator>& team) const {
  const RankGrid ranks = grid_of(team, &grid);
  const LearnerTask task = task_of(grid, ranks);
  const bool is_step = m_deck.sweep.what == ScalingWork::step;
  const auto make = [&](const std::shared_ptr<Ledger>& ledger) {
    std::pair<std::unique_ptr<Learner>, std::unique_ptr<LayerBench>> made;
    if (is_step)
      made.first = make_learner(m_space, task, ledger);
    else
      made.second = make_layer_bench(m_space, task, ledger);
    return made;
  };
  const auto forecast = Ledger::create(Ledger::Mode::count);
  make(forecast);
  const auto free = measure::memory_available(m_space);
  const auto each = free.value_or(~std::size_t(0)) / static_cast<std::size_t>(m_ranks.on_this_machine());
  const double lacks = forecast->peak_total() > each ? 1 : 0;
  if (const auto all = gather(*team, std::span(&lacks, 1), "memory"); std::ranges::count(all, 1.0) > 0)
    return json{{"message", fmt::format("a rank needs {}, but {} is free for each",
                                        format_bytes(forecast->peak_total()), format_bytes(each))}}
        .dump();

  const StepShape shape = shape_of(grid, ranks, task);
  json report;
  {
    const measure::KernelNames names;
    const auto ledger = Ledger::create(Ledger::Mode::allocate);
    const auto [learner, layer] = make(ledger);
    const auto own = sequences(is_step ? shape.micro_batches * m_deck.batch.micro_batch : 0);
    if (is_step) {
      learner->initialise(InitTable());
      learner->prepare();
    }
    const auto call = [&] {
      if (is_step) {
        static_cast<void>(learner->step(own));
      } else {
        layer->forward();
        layer->backward();
      }
    };
    call();
    const CallCounts before = counts_of(ranks);
    std::int64_t calls = 0;
    const measure::Samples samples = sample_together(*team, m_deck.timing, [&] {
      ++calls;
      call();
    });
    report = {{"samples", samples.seconds},
              {"inner", samples.inner_iterations},
              {"calls", calls},
              {"kernels", names.text()},
              {"predicted", forecast->peak_total()},
              {"peak", ledger->peak_total()},
              {"tokens", (is_step ? sequences_of(m_deck, grid) : grid.data * m_deck.batch.micro_batch) *
                             m_deck.batch.seq_len},
              {"communication", communication_rows(before, counts_of(ranks),
                                                   is_step ? step_calls(shape) : layer_calls(shape), calls)}};
  }
  if (!is_step) return report.dump();
  const KernelTimes times = kernel_times(grid, *team);
  report["times"] = {times.forward, times.backward, times.ends, times.update};
  report["links"] = json::array();
  for (const Link& link : links_of(ranks, shape))
    for (const double value : {link.latency, link.seconds_per_byte, link.seconds_per_summed})
      report["links"].push_back(value);
  report["cores"] = cores_of(grid);
  return report.dump();
}

// Of the machines that the ranks of a grid are on, in units of the threads of a rank.
double ScalingRun::cores_of(const PlanParallelTable& grid) const {
  if (!shares_cores(m_space)) return 0;
  const auto here = static_cast<double>(std::min<std::int64_t>(grid.ranks(), m_ranks.on_this_machine()));
  return cores_of_machine(m_space) * static_cast<double>(grid.ranks()) / here;
}

// With as many ranks at work as there are cores: those share the memory.
KernelTimes ScalingRun::kernel_times(const PlanParallelTable& grid, Communicator& team) const {
  const double cores = cores_of(grid);
  const auto busy = cores > 0 ? std::clamp<std::int64_t>(static_cast<std::int64_t>(cores), 1, grid.ranks()) : 1;
  gather(team, {}, "kernels");
  KernelTimes own;
  if (team.rank() < busy) own = own_kernel_times(grid);
  const std::array values{own.forward, own.backward, own.ends, own.update};
  const auto all = gather(team, values, "times of kernels");
  std::array<double, 4> mean{};
  for (std::size_t i = 0; i < all.size(); ++i) mean[i % 4] += all[i] / static_cast<double>(busy);
  return {mean[0], mean[1], mean[2], mean[3]};
}

KernelTimes ScalingRun::own_kernel_times(const PlanParallelTable& grid) const {
  const LearnerTask task = lone_task(grid);
  LoneCommunicator alone;
  const auto median = [&](const std::function<void()>& call) {
    return sample_together(alone, m_deck.timing, call).quantile(0.5);
  };
  KernelTimes times;
  {
    const auto ledger = Ledger::create(Ledger::Mode::allocate);
    const auto layer = make_layer_bench(m_space, task, ledger);
    times.forward = median([&] { layer->forward(); });
    times.backward = median([&] { layer->backward(); });
  }
  const auto ledger = Ledger::create(Ledger::Mode::allocate);
  const auto learner = make_learner(m_space, task, ledger);
  learner->initialise(InitTable());
  learner->prepare();
  const auto seconds = [&](std::int64_t micro_batches) {
    const auto own = sequences(micro_batches * m_deck.batch.micro_batch);
    return median([&] { static_cast<void>(learner->step(own)); });
  };
  const double one = seconds(1), micro_batch = (seconds(3) - one) / 2;
  times.update = std::max(0.0, one - micro_batch);
  // The step has the last word: layers that are timed one by one wait more often.
  const double layers = static_cast<double>(m_config.num_hidden_layers) * (times.forward + times.backward);
  const double scale = std::clamp(micro_batch / layers, 0.0, 1.0);
  times.forward *= scale;
  times.backward *= scale;
  times.ends = std::max(0.0, micro_batch - layers * scale);
  return times;
}

// All groups of the grid along an axis at a time.
Link ScalingRun::link_among(const std::shared_ptr<Communicator>& ranks, std::size_t bytes,
                            Communicator& team) const {
  const auto ledger = Ledger::create(Ledger::Mode::allocate);
  const auto bench = make_link_bench(m_space, ranks, bytes, ledger);
  const auto seconds = [&](std::size_t size, bool sums) {
    return sample_together(team, m_deck.timing, [&] { bench->exchange(size, sums); }).quantile(0.5);
  };
  constexpr std::size_t few = 64;
  const auto sent = static_cast<double>(bytes - few) * static_cast<double>(ranks->size() - 1);
  const double latency = seconds(few, false);
  return {latency, std::max(0.0, seconds(bytes, false) - latency) / sent,
          std::max(0.0, seconds(bytes, true) - latency) / sent};
}

// Measured with messages as long as those that carry most.
Links ScalingRun::links_of(const RankGrid& ranks, const StepShape& step) const {
  Links links{};
  const std::vector<Calls> calls = step_calls(step);
  for (const CallAxis axis : {CallAxis::context, CallAxis::tensor, CallAxis::replicas}) {
    const auto& along = axis == CallAxis::context  ? ranks.along(GridAxis::context)
                        : axis == CallAxis::tensor ? ranks.along(GridAxis::tensor)
                                                   : ranks.replicas();
    if (along->size() == 1) continue;
    const Calls* most = nullptr;
    for (const Calls& c : calls)
      if (c.axis == axis && (most == nullptr || c.bytes > most->bytes)) most = &c;
    std::size_t bytes = static_cast<std::size_t>(most->bytes / static_cast<std::uint64_t>(most->calls)) /
                        static_cast<std::size_t>(along->size() - 1);
    if (most->operation == "all_reduce") bytes /= 2;
    bytes = std::clamp<std::size_t>(bytes / 64 * 64, std::size_t(1) << 12, std::size_t(4) << 20);
    // Every rank along the axis has the same number.
    const auto own = static_cast<double>(bytes);
    const auto all = gather(*ranks.world(), std::span(&own, 1), "lengths of messages");
    bytes = static_cast<std::size_t>(std::ranges::max(all));
    links[static_cast<std::size_t>(axis)] = link_among(along, bytes, *ranks.world());
  }
  return links;
}

}  // namespace kformer::drivers
