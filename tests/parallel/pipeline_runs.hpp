// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/parallel/leaf_shares.hpp"
#include "kformer/parallel/pipeline_links.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "parallel/tensor_runs.hpp"

/// \file
/// Trainings of models whose layers ranks divide.

namespace kformer::Testing {

/// Several layers in most parts, and not as many in all.
inline LlamaConfig deep_model(const Kind& kind, int parts, int tensor = 1) {
  LlamaConfig config = model(kind, tensor);
  config.num_hidden_layers = 2 * parts - parts / 2;
  return config;
}

/// In which order stages work, and how many parts of the model each has.
struct Order {
  PipelineSchedule schedule;
  int parts;
};
inline constexpr Order orders[] = {{PipelineSchedule::one_forward_one_backward, 1},
                                   {PipelineSchedule::interleaved, 2},
                                   {PipelineSchedule::interleaved, 3},
                                   {PipelineSchedule::zero_bubble, 1}};

inline std::string name_of_order(const Order& order) {
  return std::string(name_of(order.schedule)) + " with " + std::to_string(order.parts) + " parts";
}

/// Whether messages of the gradients of a tied embedding are overtaken by others in the fixed order: NCCL cannot.
inline bool needs_overtaking(const LlamaConfig& config, const Order& order) {
  return config.tie_word_embeddings && order.schedule == PipelineSchedule::interleaved;
}

inline PipelineOptions pipeline_on(const std::shared_ptr<PipelineLinks>& links, const Order& order) {
  // One rank has the whole model, whatever the order.
  return {.ranks = links, .schedule = order.schedule, .parts = links->ranks()->size() > 1 ? order.parts : 1};
}
inline PipelineOptions pipeline_on(const std::shared_ptr<Communicator>& ranks, const Order& order) {
  return pipeline_on(std::make_shared<PipelineLinks>(ranks), order);
}

/// Whether a schedule goes with what layers of a model keep.
inline bool may_run(const Order& order, const Kind& kind) {
  return order.schedule != PipelineSchedule::zero_bubble || kind.recompute != Recompute::layer;
}

/// The same model, with layers that keep what a schedule needs.
inline Kind kept_for(const Order& order, Kind kind) {
  if (!may_run(order, kind)) kind.recompute = Recompute::pointwise;
  return kind;
}

/// Losses, norms and weights of ranks have the bits of those without stages.
template <class T>
void check_bits_of(const Run<T>& alone, const Run<T>& together, const std::string& what) {
  for (std::size_t i = 0; i < steps; ++i) {
    BOOST_TEST(together.reports[i].loss == alone.reports[i].loss, what);
    BOOST_TEST(together.reports[i].gradient_norm == alone.reports[i].gradient_norm, what);
  }
  const auto whole = alone.weights();
  for (const auto& [name, values] : together.weights())
    BOOST_TEST((values == whole.at(name)), what << ", " << name);
}

/// A trainer that only counts needs the memory of this one.
template <class T>
void check_forecast(TrainerOptions options, const LlamaConfig& config, const RankGrid& grid,
                    const Run<T>& run) {
  const auto& place = grid.place();
  if (options.parallel.ranks)
    options.parallel.ranks = std::make_shared<LoneCommunicator>(place.data, grid.shape().data);
  options.pipeline.ranks = std::make_shared<PipelineLinks>(
      std::make_shared<LoneCommunicator>(place.pipeline, grid.shape().pipeline));
  const auto forecast = Ledger::create(Ledger::Mode::count);
  const Trainer<Exec, T> counted(config, options, *forecast);
  for (int c = 0; c < memory_classes; ++c) {
    const auto memory_class = static_cast<MemoryClass>(c);
    BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class), to_string(memory_class));
  }
}

/// Micro-batches in turns: the sequences of a step in the order of the ranks along `data` that have them, and which are a
/// rank's.
struct Dealt {
  EditSequences in_turns;
  std::int64_t first = 0, count = 0;

  Dealt(std::int64_t sequences, int data, int rank) {
    const LeafShares shares{(sequences + batch - 1) / batch, data, true};
    std::vector<std::size_t> order;
    for (int r = 0; r < data; ++r) {
      const auto begin = std::ssize(order);
      for (std::int64_t k = 0; k < shares.count(r); ++k) {
        const std::int64_t from = shares.leaf(r, k) * batch;
        for (std::int64_t s = from; s < std::min(sequences, from + batch); ++s)
          order.push_back(static_cast<std::size_t>(s));
      }
      if (r == rank) first = begin, count = std::ssize(order) - begin;
    }
    in_turns = [order](std::vector<TokenSequence>& all) {
      const std::vector<TokenSequence> before = all;
      for (std::size_t i = 0; i < order.size(); ++i) all[i] = before[order[i]];
    };
  }
};

}  // namespace kformer::Testing
