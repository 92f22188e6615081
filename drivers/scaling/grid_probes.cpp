// SPDX-License-Identifier: MIT
#include "scaling/grid_probes.hpp"

#include <algorithm>

#include "kformer/parallel/pipeline_links.hpp"
#include "measure/fill.hpp"

namespace kformer::drivers {

namespace {

constexpr std::size_t few_bytes = 64;
// The calls of the kernels, in this order; three of each axis follow.
enum Kernel : std::size_t { forward, backward, weights, one_micro_batch, three_micro_batches, kernels };

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

// What a rank computes, with a model of its own that has the extents of a rank along `tensor`.
LearnerTask lone_task(const ScalingDeck& deck, const StepShape& step) {
  LearnerTask task;
  task.config = step.config;
  const std::int64_t tensor = step.grid.tensor;
  task.config.num_attention_heads /= tensor;
  task.config.num_key_value_heads /= tensor;
  task.config.intermediate_size /= tensor;
  task.config.vocab_size = (task.config.vocab_size + tensor - 1) / tensor;
  task.config.num_hidden_layers = std::max<std::int64_t>(1, task.config.num_hidden_layers / step.grid.pipeline);
  task.dtype = deck.precision.storage;
  task.trainer.shape = step.micro_batch;
  task.trainer.layer.accumulate = true;
  if (step.grid.context > 1)
    task.trainer.layer.context = task.trainer.parallel.ranks =
        std::make_shared<SilentCommunicator>(step.place.context, step.grid.context);
  return task;
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
  const auto others = static_cast<std::size_t>(ranks_along(axis, step.grid) - 1);
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

GridProbes::GridProbes(const ScalingDeck& deck, const std::string& space, const RankGrid& ranks,
                       const StepShape& step, std::int64_t busy, const std::shared_ptr<Ledger>& ledger)
    : m_busy(busy),
      m_computes(ranks.world()->rank() < busy),
      m_splits(splits_backward(step.pipeline.schedule)) {
  const LearnerTask task = lone_task(deck, step);
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
    std::unique_ptr<LinkBench> bench;
    if (members && members->size() > 1) bench = make_link_bench(space, members, bytes, ledger);
    m_axes.push_back({axis, ranks_along(axis, step.grid), bytes, std::move(bench)});
  }
}

std::vector<std::function<void()>> GridProbes::calls() {
  std::vector<std::function<void()>> all(kernels);
  const auto when_computing = [this](const std::function<void()>& call) {
    return m_computes ? call : std::function<void()>([] {});
  };
  all[forward] = when_computing([this] { m_layer->forward(); });
  all[backward] = when_computing([this] { m_layer->backward(); });
  all[weights] = when_computing([this] {
    if (m_splits) m_layer->backward_weights();
  });
  all[one_micro_batch] = when_computing([this] { static_cast<void>(m_learner->step(m_steps[0])); });
  all[three_micro_batches] = when_computing([this] { static_cast<void>(m_learner->step(m_steps[1])); });
  for (Axis& axis : m_axes) {
    const bool messages = axis.axis == CallAxis::neighbours;
    const auto add = [&](std::size_t bytes, LinkUse use) {
      all.emplace_back([&axis, bytes, use] {
        if (axis.bench) axis.bench->exchange(bytes, use);
      });
    };
    add(few_bytes, messages ? LinkUse::message : LinkUse::gather);
    add(axis.bytes, messages ? LinkUse::message : LinkUse::gather);
    add(axis.bytes, messages ? LinkUse::message : LinkUse::sum);
  }
  return all;
}

KernelTimes GridProbes::times(std::span<const TurnSamples> samples) const {
  const auto seconds = [&](Kernel kernel) {
    return measure::quantile(samples[kernel].mean_of_first(m_busy), 0.5);
  };
  KernelTimes times{.forward = seconds(forward), .weights = m_splits ? seconds(weights) : 0};
  times.backward = seconds(backward) + times.weights;
  // Differences of neighbouring samples: what makes both slow does not count.
  const auto ones = samples[one_micro_batch].mean_of_first(m_busy),
             threes = samples[three_micro_batches].mean_of_first(m_busy);
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

Links GridProbes::links(std::span<const TurnSamples> samples) const {
  Links links{};
  std::size_t next = kernels;
  for (const Axis& axis : m_axes) {
    const auto seconds = [&](std::size_t call) { return samples[call].slowest().quantile(0.5); };
    const double latency = seconds(next), gathered = seconds(next + 1), summed = seconds(next + 2);
    next += 3;
    const auto per_byte = [&](double whole) {
      return std::max(0.0, whole - latency) / static_cast<double>(axis.bytes - few_bytes);
    };
    Link& link = links[static_cast<std::size_t>(axis.axis)];
    if (axis.axis == CallAxis::neighbours) {
      link = {latency / 2, per_byte(gathered) / 2, per_byte(gathered) / 2};
      continue;
    }
    const auto others = static_cast<double>(axis.ranks - 1);
    link = {latency, per_byte(gathered) / others, per_byte(summed) / others};
  }
  return links;
}

}  // namespace kformer::drivers
