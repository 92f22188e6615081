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
#include "measure/kernel_names.hpp"
#include "scaling/grid_probes.hpp"
#include "scaling/simulated_machine.hpp"

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
    const bool waited = name.first == "receive" && c.calls > earlier.calls;
    if (c.bytes > earlier.bytes || expects > 0 || waited)
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
  // The replicas of a grid that divides tokens have a communicator of their own, and each stage two with the next one.
  const std::int64_t others = (grid.context > 1 ? 1 : 0) + 2 * (grid.pipeline - 1);
  const int rank = waiting->rank();
  for (std::int64_t i = 0; i < others; ++i) waiting->subset(std::span(&rank, 1), "waiting");
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

namespace {

Simulation simulation_of(const std::vector<StepShape>& stages, const KernelTimes& times, const Links& links,
                         double cores) {
  const SimulatedTime time = simulate(step_program(stages, times, links, cores));
  return {.grid = stages.front().grid,
          .times = times,
          .links = links,
          .cores = cores,
          .seconds = time.seconds,
          .computed = time.computed.front(),
          .bubble = bubble_of(stages.front(), times)};
}

// The grid as the first rank of a stage has it, which need not be there.
RankGrid first_of_stage(const PlanParallelTable& grid, int stage) {
  const std::int64_t rank = stage * grid.ranks() / grid.pipeline;
  return grid_of(std::make_shared<LoneCommunicator>(), &grid, static_cast<int>(rank));
}

json to_json(const KernelTimes& t) { return {t.forward, t.backward, t.weights, t.ends, t.update}; }

KernelTimes kernel_times_from(const json& t) { return {t[0], t[1], t[2], t[3], t[4]}; }

json to_json(const Links& links) {
  json all = json::array();
  for (const Link& l : links) all.push_back({l.latency, l.seconds_per_byte, l.seconds_per_summed});
  return all;
}

Links links_from(const json& all) {
  Links links{};
  for (std::size_t i = 0; i < links.size(); ++i) links[i] = {all[i][0], all[i][1], all[i][2]};
  return links;
}

ExchangeCost cost_of_exchanges(const GridResult& result) {
  if (result.calls == 0) return {};
  const auto mean_seconds = [&](auto counts) {
    double sum = 0;
    for (const RankCalls& c : result.communication) sum += counts(c) ? c.seconds : 0;
    return sum / static_cast<double>(result.calls) / static_cast<double>(result.grid.ranks());
  };
  const double call = std::accumulate(result.seconds.begin(), result.seconds.end(), 0.0) /
                      static_cast<double>(result.seconds.size());
  const double seconds = mean_seconds([](const RankCalls&) { return true; });
  const double waits =
      mean_seconds([](const RankCalls& c) { return c.operation == "receive" || c.region == "stage losses"; });
  return {seconds, seconds / call, waits / call};
}

}  // namespace

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
  for (const std::string& text : m_ranks.gather_text(own, "the results of a grid"))
    if (!text.empty()) add_report(json::parse(text), result);
  result.exchanges = cost_of_exchanges(result);
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

// What the next rank of a grid says.
void ScalingRun::add_report(const json& report, GridResult& result) const {
  Measurement& m = result.measurement;
  if (report.contains("refusal")) {
    m.message = report["refusal"];
    m.status = CaseStatus::skipped_memory;
    return;
  }
  const std::int64_t rank = std::ssize(result.memory);
  result.memory.push_back({report["predicted"], report["peak"]});
  result.seconds.push_back(report["seconds"]);
  for (const json& row : report["communication"])
    result.communication.push_back({{row[0], row[1], row[2], row[3], row[4]}, rank, row[5]});
  if (rank > 0) return;
  m.samples.seconds = report["samples"].get<std::vector<double>>();
  m.samples.inner_iterations = report["inner"];
  m.kernels = report["kernels"];
  m.message = report["note"];
  result.tokens = report["tokens"];
  result.calls = report["calls"];
  if (report.contains("times"))
    result.simulation = simulation_of(stages_of(result.grid), kernel_times_from(report["times"]),
                                      links_from(report["links"]), cores_of(result.grid));
}

GridResult ScalingRun::simulated(const PlanParallelTable& grid) const {
  GridResult result{.grid = grid};
  Measurement& m = result.measurement;
  m.message = undivided(m_deck, grid);
  m.status = m.message.empty() ? CaseStatus::ok : CaseStatus::unsupported;
  if (!m.message.empty()) return result;
  const std::vector<StepShape> stages = stages_of(grid);
  result.simulation = simulation_of(stages, kernel_times_on(*m_deck.machine, stages.front()),
                                    links_on(*m_deck.machine, stages.front().grid), 0);
  result.tokens = sequences_of(m_deck, grid) * m_deck.batch.seq_len;
  for (int stage = 0; stage < grid.pipeline; ++stage)
    m.predicted =
        std::max(m.predicted, forecast_of(m_space, task_of(grid, first_of_stage(grid, stage)))->peak_total());
  return result;
}

LearnerTask ScalingRun::task_of(const PlanParallelTable& grid, const RankGrid& ranks) const {
  LearnerTask task;
  task.config = m_config;
  task.dtype = m_deck.precision.storage;
  task.trainer.shape = {m_deck.batch.micro_batch, m_deck.batch.seq_len};
  const std::int64_t batches = sequences_of(m_deck, grid) / m_deck.batch.micro_batch;
  task.trainer.layer.accumulate = batches > 1;
  share_among(ranks, grid, batches, task);
  return task;
}

std::vector<StepShape> ScalingRun::stages_of(const PlanParallelTable& grid) const {
  std::vector<StepShape> stages;
  for (int stage = 0; stage < grid.pipeline; ++stage) {
    const RankGrid lone = first_of_stage(grid, stage);
    stages.push_back(shape_of(grid, lone, task_of(grid, lone)));
  }
  return stages;
}

StepShape ScalingRun::shape_of(const PlanParallelTable& grid, const RankGrid& ranks,
                               const LearnerTask& task) const {
  const std::size_t stored = size_of(task.dtype);
  return {.config = m_config,
          .micro_batch = task.trainer.shape,
          .micro_batches = micro_batches_of(m_deck, grid),
          .grid = ranks.shape(),
          .place = ranks.place(),
          .zero = static_cast<int>(grid.zero),
          .sequence = grid.sequence,
          .exchange = grid.context_exchange,
          .pipeline = {grid.schedule, static_cast<int>(grid.pipeline), static_cast<int>(grid.parts)},
          .stored_bytes = stored,
          .computed_bytes = std::max(stored, sizeof(float)),
          .arrays = trained_arrays(m_space, task)};
}

namespace {

// What is timed: a training step, or a layer forward and backward.
class Work {
 public:
  Work(ScalingWork what, const std::string& space, const LearnerTask& task,
       const std::shared_ptr<Ledger>& ledger) {
    if (what == ScalingWork::step)
      m_learner = make_learner(space, task, ledger);
    else
      m_layer = make_layer_bench(space, task, ledger);
  }

  void prepare(std::vector<TokenSequence> sequences) {
    m_sequences = std::move(sequences);
    if (!m_learner) return;
    m_learner->initialise(InitTable());
    m_learner->prepare();
  }

  void call() {
    if (m_learner) {
      static_cast<void>(m_learner->step(m_sequences));
    } else {
      m_layer->forward();
      m_layer->backward();
    }
  }

 private:
  std::unique_ptr<Learner> m_learner;
  std::unique_ptr<LayerBench> m_layer;
  std::vector<TokenSequence> m_sequences;
};

std::string kernels_of(Work& work) {
  const measure::KernelNames names;
  work.call();
  return names.text();
}

}  // namespace

std::string ScalingRun::timed(const PlanParallelTable& grid, const std::shared_ptr<Communicator>& team) const {
  const RankGrid ranks = grid_of(team, &grid);
  const LearnerTask task = task_of(grid, ranks);
  const StepShape shape = shape_of(grid, ranks, task);
  const bool is_step = m_deck.sweep.what == ScalingWork::step;
  const auto probes_of = [&](const std::shared_ptr<Ledger>& ledger) {
    return std::make_unique<GridProbes>(m_deck, m_space, grid, ranks, shape, busy_ranks(grid), ledger);
  };
  const auto forecast = Ledger::create(Ledger::Mode::count), besides = Ledger::create(Ledger::Mode::count);
  const Work counted(m_deck.sweep.what, m_space, task, forecast);
  if (is_step) probes_of(besides);
  const Room room = room_for(*forecast, *besides, *team);
  if (!room.refusal.empty()) return json{{"refusal", room.refusal}}.dump();

  const auto ledger = Ledger::create(Ledger::Mode::allocate), probe_ledger = Ledger::create();
  Work work(m_deck.sweep.what, m_space, task, ledger);
  work.prepare(random_sequences(m_deck, is_step ? shape.micro_batches * m_deck.batch.micro_batch : 0));
  const std::string kernels = kernels_of(work);
  const CallCounts before = counts_of(ranks);
  std::int64_t calls = 0;
  double seconds = 0;
  std::vector<std::function<void()>> turns{[&] {
    ++calls;
    seconds += seconds_of_call([&] { work.call(); });
  }};
  std::unique_ptr<GridProbes> probes;
  if (is_step && room.note.empty()) {
    probes = probes_of(probe_ledger);
    std::ranges::move(probes->calls(), std::back_inserter(turns));
  }
  const std::vector<TurnSamples> samples = sample_in_turns(*team, m_deck.timing, turns);
  const measure::Samples steps = samples.front().slowest();
  json report = {
      {"samples", steps.seconds},
      {"inner", steps.inner_iterations},
      {"calls", calls},
      {"seconds", seconds / static_cast<double>(calls)},
      {"kernels", kernels},
      {"note", room.note},
      {"predicted", forecast->peak_total()},
      {"peak", ledger->peak_total()},
      {"tokens",
       (is_step ? sequences_of(m_deck, grid) : grid.data * m_deck.batch.micro_batch) * m_deck.batch.seq_len},
      {"communication",
       communication_rows(before, counts_of(ranks), is_step ? step_calls(shape) : layer_calls(shape), calls)}};
  if (probes) {
    const auto of_probes = std::span(samples).subspan(1);
    report["times"] = to_json(probes->times(of_probes));
    report["links"] = to_json(probes->links(of_probes));
  }
  return report.dump();
}

// All ranks agree.
ScalingRun::Room ScalingRun::room_for(const Ledger& work, const Ledger& besides, Communicator& team) const {
  const std::size_t each = m_ranks.free_memory(m_space).value_or(~std::size_t(0));
  const std::array own{static_cast<double>(work.peak_total()), static_cast<double>(besides.peak_total()),
                       static_cast<double>(each)};
  const std::vector<double> all = gather(team, own, "memory");
  Room room;
  // In the words of the first rank that lacks memory.
  for (std::size_t i = 0; i < all.size(); i += own.size()) {
    const double needed = all[i], more = all[i + 1], at_hand = all[i + 2];
    const auto text = [](double bytes) { return format_bytes(static_cast<std::size_t>(bytes)); };
    if (needed > at_hand && room.refusal.empty())
      room.refusal = fmt::format("a rank needs {}, but {} is free for each", text(needed), text(at_hand));
    if (needed + more > at_hand && room.note.empty())
      room.note = fmt::format("not simulated: the kernels alone need {} besides, and {} is free for each rank",
                              text(more), text(at_hand));
  }
  return room;
}

// As many as there are cores: those share the memory.
std::int64_t ScalingRun::busy_ranks(const PlanParallelTable& grid) const {
  const double cores = cores_of(grid);
  return cores > 0 ? std::clamp<std::int64_t>(static_cast<std::int64_t>(cores), 1, grid.ranks()) : 1;
}

// Of the machines that the ranks of a grid are on, in units of the threads of a rank.
double ScalingRun::cores_of(const PlanParallelTable& grid) const {
  if (!shares_cores(m_space)) return 0;
  const auto here = static_cast<double>(std::min<std::int64_t>(grid.ranks(), m_ranks.on_this_machine()));
  return cores_of_machine(m_space) * static_cast<double>(grid.ranks()) / here;
}

}  // namespace kformer::drivers
