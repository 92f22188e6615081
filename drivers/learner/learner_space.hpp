// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kformer/load/load_weights.hpp"
#include "kformer/memory/arena.hpp"
#include "learner/learner.hpp"
#include "learner/reference_weights.hpp"
#include "learner/sampler.hpp"
#include "measure/fill.hpp"
#include "measure/transfer.hpp"

/// \file
/// Definition of `make_learner_on`.

namespace kformer::drivers {

/// The number of the seed stream of a tensor: a hash of its name (FNV-1a), so that it does not depend on the
/// other tensors.
inline std::uint64_t stream_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

template <class Exec, class T>
class LearnerOn final : public Learner {
 public:
  LearnerOn(const LearnerTask& task, Ledger& ledger)
      : m_task(task),
        m_ledger(ledger.shared_from_this()),
        m_trainer(task.config, task.trainer, ledger),
        m_staging(
            staging(std::max({task.staging_bytes, task.saves_weights ? gather_bytes(&Model::parameters) : 0,
                              gather_bytes(&Model::adapters)}))) {
    if (task.reference) m_reference.emplace(all_of(&Model::parameters), ledger);
    if (task.sampler) m_sampler.emplace(m_trainer.model(), task, ledger);
    if (task.checkpoints) m_checkpoints.emplace(*task.checkpoints, m_trainer.shard(), ledger);
    if (!task.logits) return;
    Arena<memory_space> arena;
    arena.add(m_logits, 1, task.config.vocab_size);
    m_logits_block = arena.allocate(ledger, MemoryClass::workspace, "Learner::logits");
  }

  void load(const Checkpoint& checkpoint) override {
    load_weights(m_exec, checkpoint, all_of(&Model::weights), m_staging, *m_ledger);
    m_staging = {};
  }

  void initialise(const InitTable& init) override {
    for (const WeightSlot& slot : all_of(&Model::weights))
      if (slot.is_quantized()) {
        const auto dense = kformer::Impl::matrix_in<T>(m_staging, 0, slot.quantized.rows, slot.quantized.cols);
        initialise(init, slot.name, tensor_ref(dense), slot.slice);
        quantize(m_exec, dense, slot.quantized);
      } else {
        initialise(init, slot.name, slot.dense, slot.slice);
      }
    m_exec.fence("kformer-train::initialise");
    m_staging = {};
  }

  void load(const AdapterCheckpoint& adapter) override {
    const auto adapters = all_of(&Model::adapters);
    load_adapter(m_exec, adapter, std::span<const Parameter>(adapters), *m_ledger);
  }

  void initialise_adapters(std::int64_t seed) override {
    for (const Parameter& p : all_of(&Model::adapters)) {
      // The deviation of PEFT's first A, uniform within 1/√in.
      if (p.name.ends_with(".lora_magnitude_vector")) continue;
      const bool zero = p.name.ends_with(".lora_B.weight");
      const std::int64_t in = p.slice.axis == 1 ? p.slice.whole : p.weight.extent[1];
      const double deviation = zero ? 0 : 1 / std::sqrt(3 * static_cast<double>(in));
      measure::fill_normal(m_exec, static_cast<T*>(p.weight.data), p.weight.size(),
                           measure::mix(static_cast<std::uint64_t>(seed)) + stream_of(p.name), deviation,
                           part_of(p.weight, p.slice));
    }
    for (Model& part : m_trainer.parts()) part.reset_magnitudes(m_exec);
  }

  void prepare() override {
    m_trainer.prepare(m_exec);
    if (m_sampler) m_sampler->prepare(m_exec);
    m_exec.fence("kformer-train::prepare");
  }

  StepReport step(std::span<const TokenSequence> sequences) override {
    return m_trainer.step(m_exec, sequences);
  }
  StepReport step(std::span<const TokenSequence> sequences, const Objective& objective) override {
    return m_trainer.step(m_exec, sequences, objective);
  }
  LogProbabilities log_probabilities(std::span<const TokenSequence> sequences) override {
    return m_trainer.log_probabilities(m_exec, sequences);
  }
  void keep_reference() override {
    m_reference->keep(m_exec);
    m_exec.fence("kformer-train::keep_reference");
  }
  LogProbabilities reference_log_probabilities(std::span<const TokenSequence> sequences) override {
    if (!m_reference) return m_trainer.log_probabilities(m_exec, sequences, AdapterUse::off);
    const auto in_place = m_reference->in_place(m_exec);
    return m_trainer.log_probabilities(m_exec, sequences);
  }
  std::vector<GeneratedSequence> sample(std::span<const std::vector<std::int32_t>> prompts,
                                        std::int64_t first_stream) override {
    return m_sampler->sample(m_exec, prompts, first_stream);
  }
  double evaluate(std::span<const TokenSequence> sequences) override {
    return m_trainer.evaluate(m_exec, sequences);
  }
  std::int64_t steps_done() const override { return m_trainer.steps_done(); }

  // As many texts at once as a micro-batch has sequences.
  Logits logits_after(std::span<const std::vector<std::int32_t>> texts) override {
    const std::int64_t batch = m_task.trainer.shape.batch;
    Logits logits;
    while (!texts.empty()) {
      const auto part = texts.first(std::min(texts.size(), static_cast<std::size_t>(batch)));
      forward(part);
      for (std::size_t i = 0; i < part.size(); ++i)
        logits.push_back(logits_at(static_cast<std::int64_t>(i), std::ssize(part[i]) - 1));
      texts = texts.subspan(part.size());
    }
    return logits;
  }

  Logits logits_of(const std::vector<std::int32_t>& text) override {
    forward(std::span(&text, 1));
    Logits logits;
    for (std::int64_t t = 0; t < std::ssize(text); ++t) logits.push_back(logits_at(0, t));
    return logits;
  }

  TrainerState state() const override { return m_trainer.state(); }
  void save_checkpoint(const std::string& text, CheckpointColumns columns) override {
    m_checkpoints->snapshot(m_exec, m_trainer.steps_done(), text, std::move(columns));
  }
  void finish_checkpoints() override { m_checkpoints->finish(); }
  void restore(const TrainingCheckpoint& checkpoint, const TrainerState& state) override {
    m_staging = {};  // unless weights were loaded below adapters, it is still there
    checkpoint.restore(m_exec, std::span<const NamedArray>(m_trainer.arrays()), *m_ledger,
                       m_trainer.stages() != nullptr);
    m_trainer.restore(state);
  }

  void merge_adapters() override {
    for (Model& part : m_trainer.parts()) part.merge_adapters(m_exec);
  }
  void save_weights(const std::filesystem::path& path) override {
    const auto parameters = all_of(&Model::parameters);
    kformer::save_weights(m_exec, std::span<const Parameter>(parameters), path, *m_ledger,
                          ranks_of(&Model::parameters), staging(gather_bytes(&Model::parameters)));
  }
  void save_gguf_adapter(const std::filesystem::path& file) override {
    const auto adapters = all_of(&Model::adapters);
    kformer::save_gguf_adapter(m_exec, std::span<const Parameter>(adapters), m_task.trainer.layer.lora,
                               m_trainer.model().config(), file, *m_ledger);
  }
  void save_adapter(const std::filesystem::path& folder, const AdapterDescription& description) override {
    const auto adapters = all_of(&Model::adapters);
    kformer::save_adapter(m_exec, std::span<const Parameter>(adapters), m_task.trainer.layer.lora, description,
                          folder, *m_ledger, ranks_of(&Model::adapters),
                          staging(gather_bytes(&Model::adapters)));
  }

 private:
  using memory_space = typename Exec::memory_space;
  using Model = LlamaModel<Exec, T>;

  MemoryBlock<memory_space> staging(std::size_t bytes) {
    return m_ledger->allocate(m_exec, MemoryClass::io, "Learner::staging", bytes);
  }

  // Of all parts of the model that this rank has.
  template <class Item>
  std::vector<Item> all_of(std::vector<Item> (Model::*list)() const) {
    std::vector<Item> all;
    for (const Model& part : m_trainer.parts()) std::ranges::move((part.*list)(), std::back_inserter(all));
    return all;
  }

  // Those that have parts of what is listed.
  WeightRanks<Exec> ranks_of(std::vector<Parameter> (Model::*list)() const) {
    WeightRanks<Exec> ranks{.tensor = m_trainer.model().tensor_ranks(), .stages = m_trainer.stages()};
    if (!ranks.stages) return ranks;
    LayerOptions options = m_task.trainer.layer;
    options.mode = LayerMode::inference;
    options.context.reset();
    options.sequence_parallel = false;
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const Model whole(m_task.config, {1, 1}, options, *ledger);
    ranks.all = (whole.*list)();
    return ranks;
  }

  // For weights that other ranks have parts of.
  std::size_t gather_bytes(std::vector<Parameter> (Model::*list)() const) {
    const auto own = all_of(list);
    return kformer::gather_bytes(std::span<const Parameter>(own), ranks_of(list));
  }

  // What follows the tokens of a text does not matter, for attention is causal.
  void forward(std::span<const std::vector<std::int32_t>> texts) {
    const auto seq_len = static_cast<std::size_t>(m_task.trainer.shape.seq_len);
    std::vector<TokenSequence> sequences;
    for (const std::vector<std::int32_t>& text : texts) {
      sequences.push_back({text, {}, {0}});
      sequences.back().ids.resize(seq_len, 0);
      sequences.back().targets.assign(seq_len, CrossEntropyOptions().ignore_index);
    }
    m_trainer.forward(m_exec, sequences);
  }

  // After a token of the micro-batch.
  std::vector<double> logits_at(std::int64_t sequence, std::int64_t token) {
    m_trainer.logits(m_exec, sequence, token, m_logits);
    m_exec.fence("kformer-train::logits");
    return measure::download<Exec>(tensor_ref(m_logits)).values;
  }

  // Where a part of a matrix is in the whole.
  static measure::PartOfArray part_of(const TensorRef& part, const ArraySlice& slice) {
    const std::int64_t columns = part.extent[1];
    if (slice.axis == 1) return {slice.begin, columns, slice.whole};
    return {slice.begin * columns, columns, columns};
  }

  // An element depends on its place in the whole weight alone.
  void initialise(const InitTable& init, const std::string& name, const TensorRef& weight,
                  const ArraySlice& slice) {
    T* data = static_cast<T*>(weight.data);
    if (weight.rank == 1) {
      const bool bias = name.ends_with(".bias");
      measure::fill_random(m_exec, data, weight.size(), 0, 0, bias ? 0 : 1);
      return;
    }
    const auto layers = static_cast<double>(m_task.config.num_hidden_layers);
    const bool residual = name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight");
    const bool scaled = init.scheme == InitScheme::scaled && residual;
    measure::fill_normal(m_exec, data, weight.size(),
                         measure::mix(static_cast<std::uint64_t>(init.seed)) + stream_of(name),
                         scaled ? init.std / std::sqrt(2 * layers) : init.std, part_of(weight, slice));
  }

  LearnerTask m_task;
  std::shared_ptr<Ledger> m_ledger;
  Exec m_exec;
  Trainer<Exec, T> m_trainer;
  std::optional<ReferenceWeights<Exec, T>> m_reference;
  std::optional<Sampler<Exec, T>> m_sampler;
  std::optional<CheckpointWriter<Exec>> m_checkpoints;
  MemoryBlock<memory_space> m_staging;  // until the weights are there
  BlockMatrix<memory_space, T> m_logits;
  MemoryBlock<memory_space> m_logits_block;
};

template <class Exec>
std::unique_ptr<Learner> make_learner_on(const LearnerTask& task, Ledger& ledger) {
  return dispatch_dtype(task.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Learner> {
    return std::make_unique<LearnerOn<Exec, T>>(task, ledger);
  });
}

template <class Exec>
RecomputeCosts recompute_costs_on(const LearnerTask& task, const MachineRates& rates) {
  LayerOptions options = task.trainer.layer;
  options.mode = LayerMode::training;
  LayerShape shape = task.trainer.shape;
  if (options.context) shape.seq_len /= options.context->size();
  return dispatch_dtype(task.dtype, [&]<class T>(std::type_identity<T>) {
    return recompute_costs<Exec, T>(task.config, shape, options, rates);
  });
}

}  // namespace kformer::drivers
