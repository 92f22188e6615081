// SPDX-License-Identifier: MIT
#include "scaling/grid_probes.hpp"

#include <algorithm>

#include "app/ranks.hpp"
#include "kformer/parallel/pipeline_links.hpp"
#include "learner/data_parallel.hpp"
#include "measure/fill.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t few_bytes = 64;
// The calls of the kernels, in this order. Those of each axis follow, each with messages and without.
enum Kernel : std::size_t { forward, backward, whole_backward, one_micro_batch, three_micro_batches, kernels };

// A rank whose messages have always arrived. It receives nothing: times of kernels do not depend on what they compute.
class SilentCommunicator final : public Communicator {
 public:
  SilentCommunicator(int rank, int size) : Communicator(rank, size, "silent") {}
  bool takes_device_memory() const override { return true; }
  double exchange(const InstanceRef&, const ExchangeName&, std::span<const Outgoing>,
                  std::span<const Incoming>) override {
    return 0;
  }
  std::unique_ptr<Communicator> subset(std::span<const int> members, const std::string& name) override {
    return std::make_unique<SilentCommunicator>(checked_member(members, name),
                                                static_cast<int>(members.size()));
  }
};

// A stage's layers on ranks without messages, as a model of its own.
LearnerTask silent_task(const ScalingDeck& deck, const PlanParallelTable& grid, const StepShape& step,
                        int rank) {
  LearnerTask task;
  task.config = step.config;
  task.config.num_hidden_layers = std::max<std::int64_t>(1, step.config.num_hidden_layers / grid.pipeline);
  task.dtype = deck.precision.storage;
  task.trainer.shape = step.micro_batch;
  PlanParallelTable stage = grid;
  stage.pipeline = stage.parts = 1;
  stage.schedule = PipelineSchedule::one_forward_one_backward;
  // The stages follow each other.
  const int size = static_cast<int>(stage.ranks());
  const auto world = std::make_shared<SilentCommunicator>(rank % size, size);
  const RankGrid ranks(world,
                       {.data = step.grid.data, .context = step.grid.context, .tensor = step.grid.tensor});
  share_among(ranks, stage, step.micro_batches * grid.data, task);
  task.trainer.layer.accumulate = true;
  task.trainer.parallel.micro_batches = std::max<std::int64_t>(3, task.trainer.parallel.micro_batches);
  return task;
}

// Whether its operations are part of a step on ranks without messages.
bool is_in_silent_task(CallAxis axis) {
  return axis == CallAxis::context || axis == CallAxis::tensor || axis == CallAxis::replicas;
}

// This stage and the next one, or the one before: each stage has one partner at most.
std::shared_ptr<Communicator> pair_of(const RankGrid& ranks) {
  const int stage = ranks.place().pipeline;
  if (stage % 2 == 1) return ranks.pipeline()->states_in();
  return stage + 1 < ranks.shape().pipeline ? ranks.pipeline()->states_out() : nullptr;
}

std::shared_ptr<Communicator> ranks_on(CallAxis axis, const RankGrid& ranks) {
  switch (axis) {
    case CallAxis::context:
      return ranks.along(GridAxis::context);
    case CallAxis::tensor:
      return ranks.along(GridAxis::tensor);
    case CallAxis::replicas:
      return ranks.replicas();
    case CallAxis::stages:
      return ranks.along(GridAxis::pipeline);
    case CallAxis::ends:
      return ranks.pipeline()->ends();
    case CallAxis::neighbours:
      break;
  }
  return pair_of(ranks);
}

// As long as those that carry most; 0: there are none.
std::size_t message_bytes(CallAxis axis, const StepShape& step, const std::vector<Calls>& calls) {
  const Calls* most = nullptr;
  for (const Calls& c : calls)
    if (c.axis == axis && (most == nullptr || c.bytes > most->bytes)) most = &c;
  if (most == nullptr) return 0;
  // Of one message: a rank sends a shift to the next one, everything else to all others.
  const auto others =
      static_cast<std::size_t>(most->operation == "shift" ? 1 : ranks_along(axis, step.grid) - 1);
  std::size_t bytes = static_cast<std::size_t>(most->bytes) / static_cast<std::size_t>(most->calls) / others;
  if (most->operation == "all_reduce") bytes /= 2;
  return std::clamp<std::size_t>(bytes / few_bytes * few_bytes, std::size_t(1) << 12, std::size_t(4) << 20);
}

}  // namespace

std::vector<TokenSequence> random_sequences(const ScalingDeck& deck, std::int64_t count) {
  std::vector<TokenSequence> all(static_cast<std::size_t>(count));
  auto number = static_cast<std::uint64_t>(deck.run.seed);
  const auto token = [&] {
    return static_cast<std::int32_t>(measure::mix(++number) %
                                     static_cast<std::uint64_t>(deck.model->vocab_size));
  };
  for (TokenSequence& sequence : all)
    for (std::int64_t t = 0; t < deck.batch.seq_len; ++t) {
      sequence.ids.push_back(token());
      sequence.targets.push_back(token());
    }
  return all;
}

GridProbes::GridProbes(const ScalingDeck& deck, const std::string& space, const PlanParallelTable& grid,
                       const RankGrid& ranks, const StepShape& step, std::int64_t busy,
                       const std::shared_ptr<Ledger>& ledger)
    : m_busy(busy),
      m_computes(ranks.world()->rank() < busy),
      m_splits(splits_backward(step.pipeline.schedule)),
      m_wait(step.grid.data * step.grid.context * step.grid.tensor > 1) {
  const LearnerTask task = silent_task(deck, grid, step, ranks.world()->rank());
  m_layers = task.config.num_hidden_layers;
  if (m_computes) {
    m_learner = make_learner(space, task, ledger);
    LearnerTask layer = task;
    layer.trainer.layer.split_backward = m_splits;
    m_layer = make_layer_bench(space, layer, ledger);
    m_steps = {random_sequences(deck, deck.batch.micro_batch),
               random_sequences(deck, 3 * deck.batch.micro_batch)};
    if (!ledger->counts_only()) {
      m_learner->initialise(InitTable());
      m_learner->prepare();
    }
  }
  for (const std::int64_t size : trained_arrays(space, task).elements) m_elements += static_cast<double>(size);
  connect(ranks, step, space, ledger);
}

void GridProbes::connect(const RankGrid& ranks, const StepShape& step, const std::string& space,
                         const std::shared_ptr<Ledger>& ledger) {
  const std::vector<Calls> calls = step_calls(step);
  std::array<double, call_axes> own{};
  for (std::size_t a = 0; a < call_axes; ++a)
    own[a] = static_cast<double>(message_bytes(static_cast<CallAxis>(a), step, calls));
  // All ranks along an axis have the same number, and all take the same turns.
  const std::vector<double> all = gather(*ranks.world(), own, "lengths of messages");
  for (std::size_t a = 0; a < call_axes; ++a) {
    double most = 0;
    for (std::size_t i = a; i < all.size(); i += call_axes) most = std::max(most, all[i]);
    if (most == 0) continue;
    const auto bytes = static_cast<std::size_t>(most);
    const auto axis = static_cast<CallAxis>(a);
    const auto members = ranks_on(axis, ranks);
    std::unique_ptr<LinkBench> bench, silent;
    if (members && members->size() > 1) bench = make_link_bench(space, members, bytes, ledger);
    if (bench && is_in_silent_task(axis))
      silent = make_link_bench(space, std::make_shared<SilentCommunicator>(members->rank(), members->size()),
                               bytes, ledger);
    m_axes.push_back({axis, ranks_along(axis, step.grid), bytes, std::move(bench), std::move(silent)});
  }
}

std::vector<std::function<void()>> GridProbes::calls() {
  std::vector<std::function<void()>> all(kernels);
  const auto when_computing = [this](const std::function<void()>& call) {
    return m_computes ? call : std::function<void()>([] {});
  };
  all[forward] = when_computing([this] { m_layer->forward(); });
  all[backward] = when_computing([this] { m_layer->backward(); });
  all[whole_backward] = when_computing([this] {
    if (m_splits) m_layer->whole_backward();
  });
  all[one_micro_batch] = when_computing([this] { static_cast<void>(m_learner->step(m_steps[0])); });
  all[three_micro_batches] = when_computing([this] { static_cast<void>(m_learner->step(m_steps[1])); });
  for (const Axis& axis : m_axes)
    for (const auto& [bytes, use] : uses_of(axis))
      for (LinkBench* bench : {axis.bench.get(), axis.silent.get()})
        all.emplace_back([bench, bytes, use] {
          if (bench != nullptr) bench->exchange(bytes, use);
        });
  return all;
}

// The latency, and the time of a byte; of one that is summed, too, but for messages, which are not.
std::vector<std::pair<std::size_t, LinkUse>> GridProbes::uses_of(const Axis& axis) {
  if (axis.axis == CallAxis::neighbours) return {{few_bytes, LinkUse::message}, {axis.bytes, LinkUse::message}};
  return {{few_bytes, LinkUse::gather}, {axis.bytes, LinkUse::gather}, {axis.bytes, LinkUse::sum}};
}

KernelTimes GridProbes::times(std::span<const TurnSamples> samples) const {
  // Ranks that wait for each other, in every layer or at the end of a step, are as fast as the slowest. The stages of a
  // pipeline may be late now and early then.
  const auto of_ranks = [&](Kernel kernel) {
    return m_wait ? samples[kernel].slowest().seconds : samples[kernel].mean_of_first(m_busy);
  };
  const auto seconds = [&](Kernel kernel) { return measure::quantile(of_ranks(kernel), 0.5); };
  KernelTimes times{.forward = seconds(forward), .backward = seconds(m_splits ? whole_backward : backward)};
  // Differences of neighbouring samples: what makes both slow does not count.
  if (m_splits) {
    const auto inputs = of_ranks(backward), all = of_ranks(whole_backward);
    std::vector<double> rest;
    for (std::size_t i = 0; i < all.size(); ++i) rest.push_back(all[i] - inputs[i]);
    times.weights = std::max(0.0, measure::quantile(rest, 0.5));
  }
  const auto ones = of_ranks(one_micro_batch), threes = of_ranks(three_micro_batches);
  std::vector<double> batches, updates;
  for (std::size_t i = 0; i < ones.size(); ++i) {
    batches.push_back((threes[i] - ones[i]) / 2);
    updates.push_back(ones[i] - batches.back());
  }
  const double micro_batch = measure::quantile(batches, 0.5);
  times.update = std::max(0.0, measure::quantile(updates, 0.5)) / m_elements;
  // The step has the last word: layers that are timed one by one wait more often.
  const double layers = static_cast<double>(m_layers) * (times.forward + times.backward);
  const double scale = micro_batch > 0 ? std::min(1.0, micro_batch / layers) : 1;
  for (double* part : {&times.forward, &times.backward, &times.weights}) *part *= scale;
  times.ends = std::max(0.0, micro_batch - layers * scale);
  return times;
}

// What messages add to the same calls without.
Links GridProbes::links(std::span<const TurnSamples> samples) const {
  Links links{};
  std::size_t next = kernels;
  const auto seconds = [&] {
    const auto with = samples[next].slowest().seconds, without = samples[next + 1].slowest().seconds;
    next += 2;
    std::vector<double> differences;
    for (std::size_t i = 0; i < with.size(); ++i) differences.push_back(with[i] - without[i]);
    return std::max(0.0, measure::quantile(differences, 0.5));
  };
  for (const Axis& axis : m_axes) {
    const bool messages = axis.axis == CallAxis::neighbours;
    const double latency = seconds(), gathered = seconds(), summed = messages ? gathered : seconds();
    const auto per_byte = [&](double whole) {
      return std::max(0.0, whole - latency) / static_cast<double>(axis.bytes - few_bytes) / (axis.ranks - 1);
    };
    Link& link = links[static_cast<std::size_t>(axis.axis)];
    link = {latency, per_byte(gathered), per_byte(summed)};
    // There and back.
    if (messages)
      for (double* part : {&link.latency, &link.seconds_per_byte, &link.seconds_per_summed}) *part /= 2;
  }
  return links;
}

}  // namespace kformer::drivers
