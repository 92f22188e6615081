// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/parallel/rank_grid.hpp"
#include "parallel/tensor_runs.hpp"

/// \file
/// Trainings of sequences that ranks divide.

namespace kformer::Testing {

/// 2 chunks for each of 1, 2, 3, 4 or 8 ranks.
inline constexpr std::int64_t long_sequence = 48;

inline TrainerOptions long_options(const Kind& kind) {
  TrainerOptions options = options_of(kind);
  options.layer.attention = AttentionAlgorithm::flash;
  options.shape.seq_len = long_sequence;
  return options;
}

inline void place_on(const RankGrid& grid, TrainerOptions& options) {
  options.layer.context = grid.along(GridAxis::context);
  options.layer.tensor = grid.along(GridAxis::tensor);
  options.parallel.ranks = grid.replicas();
}

inline RankGrid context_alone(const std::shared_ptr<Communicator>& ranks) {
  return {ranks, {.context = ranks->size()}};
}

/// The forecast of a rank's memory is what it needs.
template <class T>
void check_forecast(const std::shared_ptr<Communicator>& ranks, TrainerOptions options,
                    const LlamaConfig& config, const std::string& what, const EditSequences& edit = {}) {
  place_on(context_alone(ranks), options);
  const Run<T> run(options, config, 0, 2, edit);
  place_on(context_alone(std::make_shared<LoneCommunicator>(ranks->rank(), ranks->size())), options);
  const auto forecast = Ledger::create(Ledger::Mode::count);
  const Trainer<Exec, T> counted(config, options, *forecast);
  for (int c = 0; c < memory_classes; ++c) {
    const auto memory_class = static_cast<MemoryClass>(c);
    BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class),
               what << ": " << to_string(memory_class));
  }
}

/// Ranks that divide the tokens compute what one does.
inline void check_context(const TrainerOptions& options, const LlamaConfig& config, const std::string& what,
                          const EditSequences& edit = {}) {
  const Run<double> alone(options, config, 0, 8, edit);
  TrainerOptions divided = options;
  place_on(context_alone(world()), divided);
  Run<double> together(divided, config, 0, 8, edit);
  check_close_to(alone, together, what);
}

/// Grids of so many ranks.
inline std::vector<GridIndex> context_grids(int ranks) {
  std::vector<GridIndex> grids;
  for (const GridIndex& shape : {GridIndex{.data = 2, .context = 2}, GridIndex{.context = 2, .tensor = 2},
                                 GridIndex{.context = 2, .pipeline = 2}, GridIndex{.context = 4, .tensor = 2},
                                 GridIndex{.data = 2, .context = 2, .pipeline = 2}})
    if (shape.data * shape.context * shape.tensor * shape.pipeline == ranks) grids.push_back(shape);
  return grids;
}

/// The same on a grid: each rank along `data` has sequences of its own, `tensor` and `pipeline` divide the model.
inline void check_grid(const std::shared_ptr<Communicator>& ranks, const GridIndex& shape,
                       TrainerOptions options, const LlamaConfig& config, const EditSequences& edit = {}) {
  const RankGrid grid(ranks, shape);
  const Run<double> alone(options, config, 0, 4 * shape.data, edit);
  place_on(grid, options);
  if (shape.pipeline > 1) options.pipeline = {.ranks = grid.pipeline()};
  options.parallel.zero = ZeroStage::optimizer;
  Run<double> together(options, config, 4 * grid.place().data, 4, edit);
  check_close_to(alone, together,
                 std::to_string(shape.data) + " x " + std::to_string(shape.context) + " x " +
                     std::to_string(shape.tensor) + " x " + std::to_string(shape.pipeline));
}

/// Documents of a sequence: one of all ranks, borders of chunks and others, and documents of one token.
inline void pack_documents(std::vector<TokenSequence>& sequences) {
  const std::vector<std::int32_t> starts[] = {{0}, {0, 12, 24, 36}, {0, 5, 19, 20, 41}, {0, 1, 2, 23, 24, 47}};
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].starts = starts[(i + 1) % 4];
  auto& tokens = sequences.back().starts;
  tokens.resize(long_sequence);
  std::iota(tokens.begin(), tokens.end(), 0);
}

}  // namespace kformer::Testing
