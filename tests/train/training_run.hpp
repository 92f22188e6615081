// SPDX-License-Identifier: MIT
#pragma once

#include <cstring>
#include <memory>

#include "kformer/train/trainer.hpp"
#include "model/model_cases.hpp"
#include "model/model_reference.hpp"

/// \file
/// A trainer with weights and data for tests.

namespace kformer::Testing {

/// Random sequences, of whose targets a different share has no loss in each.
inline std::vector<TokenSequence> random_sequences(std::int64_t count, std::int64_t seq_len,
                                                   unsigned seed = 1) {
  std::mt19937 generator(seed);
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(small_model().vocab_size) - 1);
  std::vector<TokenSequence> all;
  for (std::int64_t i = 0; i < count; ++i) {
    TokenSequence& s = all.emplace_back();
    s.starts = {0};
    for (std::int64_t t = 0; t < seq_len; ++t) {
      s.ids.push_back(token(generator));
      s.targets.push_back(t < i % 4 ? CrossEntropyOptions().ignore_index : token(generator));
    }
  }
  return all;
}

/// The bytes of an array.
inline std::vector<unsigned char> bits_of(const TensorRef& array) {
  using Bytes = Kokkos::View<unsigned char*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const Bytes there(static_cast<unsigned char*>(array.data),
                    static_cast<std::size_t>(array.size()) * size_of(array.dtype));
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, there);
  return {host.data(), host.data() + host.size()};
}

/// A trainer whose weights are those of a fixed seed.
template <class T>
struct TrainingRun {
  static constexpr std::int64_t seq_len = 6;
  static constexpr LayerShape weights_shape{1, 1};  // with which the random weights are drawn

  std::shared_ptr<Ledger> ledger = Ledger::create();
  Trainer<Exec, T> trainer;

  explicit TrainingRun(const TrainerOptions& options, const LlamaConfig& config = small_model())
      : trainer(config, options, *ledger) {
    const ModelInputs inputs = ModelInputs::random(config, weights_shape);
    for (const Parameter& p : trainer.model().parameters())
      write_parameter<T>(p.weight, inputs.weights.at(p.name));
    trainer.prepare(Exec());
  }

  StepReport step(const std::vector<TokenSequence>& sequences) { return trainer.step(Exec(), sequences); }
  /// Step t of a run on random sequences.
  StepReport random_step(std::int64_t t) {
    return step(random_sequences(3, seq_len, 100 + static_cast<unsigned>(t)));
  }

  std::map<std::string, std::vector<unsigned char>> bits() const {
    std::map<std::string, std::vector<unsigned char>> all;
    for (const NamedArray& a : trainer.arrays()) all[a.name] = bits_of(a.array);
    return all;
  }
};

/// A trainer with random adapters, if the options have any.
template <class T>
TrainingRun<T> run_of(const TrainerOptions& options, const LlamaConfig& config = small_model()) {
  TrainingRun<T> run(options, config);
  std::mt19937 generator(11);
  std::normal_distribution<double> normal;
  for (const Parameter& p : run.trainer.model().adapters()) {
    HostTensor<double> values({p.weight.extent[0], p.weight.extent[1]});
    for (double& v : values.values()) v = 0.3 * normal(generator);
    write_parameter<T>(p.weight, values);
  }
  run.trainer.prepare(Exec());
  return run;
}

/// Options that exercise everything that a step keeps.
inline TrainerOptions some_trainer_options(std::int64_t batch = 2) {
  return {.shape = {batch, TrainingRun<float>::seq_len},
          .optimizer = {.weight_decay = 0.1, .max_norm = 1},
          .schedule = {.kind = ScheduleKind::cosine, .learning_rate = 1e-2, .steps = 8, .warmup_steps = 2}};
}

/// The same with the storage of optimizer states and the loss scaling that a run may have.
template <class T>
std::vector<TrainerOptions> resumable_options() {
  std::vector<TrainerOptions> all{some_trainer_options()};
  all.back().spikes = {.loss_z = 3, .norm_z = 3, .window = 3};
  all.push_back(some_trainer_options());
  all.back().optimizer.loss_scaling = LossScaling{.initial = 1024, .growth_interval = 2};
  if (sizeof(T) < 8) {
    all.back().optimizer.states = OptimizerStates::eight_bit;
    all.push_back(all.back());
    all.back().optimizer.master = false;
  }
  return all;
}

}  // namespace kformer::Testing
