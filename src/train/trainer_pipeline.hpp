// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/region.hpp"
#include "kformer/train/trainer.hpp"
#include "train/pipeline_ranks.hpp"
#include "train/require.hpp"

/// \file
/// Definitions of Trainer's members that make its models, and run those of a pipeline.

namespace kformer {

namespace Impl {

/// Whether gradients are added up outside the model.
inline bool adds_up(const DataParallelOptions& options) {
  return options.fixed_order || options.zero == ZeroStage::gradients;
}

inline LayerOptions for_training(const TrainerOptions& options) {
  LayerOptions layer = options.layer;
  layer.mode = LayerMode::training;
  layer.accumulate &= !adds_up(options.parallel);
  // Of one layer messages may be under way while the next one computes.
  if (options.parallel.zero == ZeroStage::gradients) layer.gradient_turns = options.parallel.overlap ? 2 : 1;
  return layer;
}

/// Of the layers of a part.
inline RecomputeSchedule schedule_of(const TrainerOptions& options, const LlamaConfig& config,
                                     const ModelPart& part) {
  if (options.recompute.layers() == 0)
    return RecomputeSchedule::uniform(options.layer.recompute, part.end - part.begin);
  RecomputeSchedule schedule = options.recompute;
  if (part == ModelPart{0, config.num_hidden_layers}) return schedule;
  Require{"Trainer"}(schedule.nested_layers == 0 && schedule.layers() == config.num_hidden_layers,
                     "a pipeline divides a recomputation schedule of ", config.num_hidden_layers,
                     " layers, of which none is nested; got ", schedule.layers(), " with ",
                     schedule.nested_layers, " nested ones");
  schedule.kinds.assign(options.recompute.kinds.begin() + part.begin,
                        options.recompute.kinds.begin() + part.end);
  return schedule;
}

/// The groups of a part of a model whose gradients are complete after some work: the ends are after backward.
template <class Model>
std::vector<std::size_t> groups_after(const Model& model, PipelineWork work, PipelineSchedule schedule) {
  const std::size_t all = model.gradient_groups().size(),
                    layers = static_cast<std::size_t>(model.part().end - model.part().begin),
                    first = all > layers && model.has_head() ? 1 : 0;
  std::vector<std::size_t> groups;
  for (std::size_t group = 0; group < all; ++group) {
    const bool is_layer = group >= first && group < first + layers;
    if (work == (is_layer ? last_work(schedule) : PipelineWork::backward)) groups.push_back(group);
  }
  return groups;
}

/// Whether two stages make a gradient whose sum has a fixed order: that of each micro-batch begins in the last stage, and
/// the first goes on, as one rank does.
inline bool sends_tied_gradient(const LlamaConfig& config, const TrainerOptions& options) {
  return options.parallel.fixed_order && config.tie_word_embeddings && !options.layer.lora.any();
}

/// The first group of a part among those of all parts, which follow each other.
inline std::size_t first_group(const auto& parts, std::size_t part) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < part; ++i) first += parts[i].gradient_groups().size();
  return first;
}

/// \throws NotSupported if options do not go with ranks that divide layers
inline void check_pipeline(const LlamaConfig& config, const TrainerOptions& options) {
  const Require require{"Trainer"};
  require_enumerator("Trainer", "pipeline.schedule", options.pipeline.schedule);
  require(options.pipeline.micro_batches >= 0, "pipeline.micro_batches must not be negative, got ",
          options.pipeline.micro_batches);
  require(!options.parallel.overlap,
          "the gradients of a pipeline are reduced at the end of a step; leave out parallel.overlap");
  require(!sends_tied_gradient(config, options) || options.pipeline.schedule != PipelineSchedule::interleaved ||
              !options.pipeline.ranks->ranks()->keeps_order(),
          "with fixed_order and the schedule interleaved, gradients of a tied embedding are overtaken by other "
          "messages, which NCCL launches in order; choose another schedule, or MPI");
}

/// Whether a part of a pipeline adds to gradients that `DataParallel` clears: backward must not clear what another stage has
/// begun. Where layers take turns, the part keeps that gradient anyway.
inline bool adds_to_gradients(const LlamaConfig& config, const TrainerOptions& options) {
  return sends_tied_gradient(config, options) && options.parallel.zero != ZeroStage::gradients;
}

/// By parameter, whether `backward_weights` makes its gradient: of layers, or of all that adapters learn.
inline std::vector<bool> waiting_gradients(const std::vector<Parameter>& parameters) {
  std::vector<bool> waiting;
  for (const Parameter& p : parameters) waiting.push_back(p.name.starts_with("model.layers."));
  return waiting;
}

/// \throws NotSupported if ranks would share a block of 8-bit states, on all of them
inline void require_whole_state_blocks(const std::vector<Parameter>& parameters, const Communicator& tensor) {
  for (const Parameter& p : parameters) {
    if (!p.slice.divides()) continue;
    const std::int64_t columns = p.weight.rank > 1 && p.slice.axis == 0 ? p.weight.extent[1] : 1;
    bool whole = true;
    for (int rank = 1; rank < tensor.size(); ++rank)
      whole &= slice_begin(p.slice.whole, rank, tensor.size()) * columns % adamw_block == 0;
    Require{"Trainer"}(whole, tensor.size(), " ranks (tensor) would divide blocks of ", adamw_block,
                       " 8-bit states of ", p.name, "; take full states, or another number of ranks");
  }
}

}  // namespace Impl

template <class Exec, Scalar T>
std::shared_ptr<typename Trainer<Exec, T>::Pipeline> Trainer<Exec, T>::make_pipeline(
    const LlamaConfig& config, const TrainerOptions& options, std::int64_t rows, Ledger& ledger) {
  if (!options.pipeline.ranks || options.pipeline.ranks->ranks()->size() == 1) return {};
  config.check_model();
  Impl::check_pipeline(config, options);
  const std::int64_t words = Impl::sends_tied_gradient(config, options)
                                 ? Impl::VocabularySlice(config.vocab_size, options.layer.tensor).size()
                                 : 0;
  return std::make_shared<Pipeline>(options.pipeline, config, rows, words, ledger);
}

template <class Exec, Scalar T>
std::deque<LlamaModel<Exec, T>> Trainer<Exec, T>::make_models(const LlamaConfig& config,
                                                              const TrainerOptions& options, LayerShape shape,
                                                              const Pipeline* pipeline, Ledger& ledger) {
  std::deque<Model> models;
  LayerOptions layer = Impl::for_training(options);
  const int parts = pipeline ? pipeline->shape().parts : 1;
  for (int part = 0; part < parts; ++part) {
    ModelPart layers{0, config.num_hidden_layers};
    if (pipeline) {
      layers = pipeline->layers(part, config.num_hidden_layers);
      layer.slots = pipeline->slots(part);
      layer.split_backward = splits_backward(pipeline->shape().schedule);
      layer.accumulate |= Impl::adds_to_gradients(config, options);
    }
    models.emplace_back(config, shape, layer, ledger, Impl::schedule_of(options, config, layers), layers);
    if (Impl::divides(layer) && options.optimizer.states == OptimizerStates::eight_bit)
      Impl::require_whole_state_blocks(models.back().trained(), *layer.tensor);
  }
  return models;
}

template <class Exec, Scalar T>
std::optional<DataParallel<Exec>> Trainer<Exec, T>::make_parallel(Ledger& ledger) {
  Collectives<Exec>* const tensor = model().tensor_ranks();
  if (!m_options.parallel.ranks && !Impl::adds_up(m_options.parallel) && !tensor && !m_pipeline) return {};
  return Impl::on_behalf_of("Trainer", [&] {
    DataParallelOptions shared = m_options.parallel;
    if (auto* const context = model().context_ranks()) shared.context = context->slice().ranks;
    ModelRanks<Exec> ranks{.tensor = tensor};
    std::vector<ParameterGroup> groups;
    std::size_t end = 0;
    for (const Model& part : m_models) {
      for (const ParameterGroup& group : part.gradient_groups())
        groups.push_back({group.begin + end, group.end + end});
      ranks.parts.push_back(end += part.trained().size());
    }
    if (m_pipeline) {
      ranks.stages = &m_pipeline->ranks();
      ranks.ends = m_pipeline->ends();
      if (splits_backward(m_pipeline->shape().schedule)) ranks.waiting = Impl::waiting_gradients(trained());
      ranks.adds_to_gradients = Impl::adds_to_gradients(model().config(), m_options);
    }
    return std::optional<DataParallel<Exec>>(std::in_place, shared, trained(), std::move(groups), ledger,
                                             std::move(ranks));
  });
}

template <class Exec, Scalar T>
Collectives<Exec>* Trainer<Exec, T>::stages() const {
  return m_pipeline ? &m_pipeline->ranks() : nullptr;
}

// Of all parts.
template <class Exec, Scalar T>
std::vector<Parameter> Trainer<Exec, T>::trained() const {
  std::vector<Parameter> all;
  for (const Model& part : m_models) std::ranges::move(part.trained(), std::back_inserter(all));
  return all;
}

// From the tokens, or what the part in front has computed, to what the next one needs.
template <class Exec, Scalar T>
void Trainer<Exec, T>::run_forward(const Exec& exec, Model& model) {
  if (model.has_embedding())
    model.forward(exec, m_batch.ids, m_packed);
  else
    model.forward_embedded(exec, m_pipeline->states_in().receive(exec), m_packed);
  if (model.has_head()) return;
  Kokkos::deep_copy(exec, m_pipeline->states_out().outgoing(), model.states());
  m_pipeline->states_out().send(exec);
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::run_backward(const Exec& exec, Model& model) {
  // In this order: a rank that waited for its last message to be taken could wait for itself.
  const BlockMatrix<memory_space, const T> dy =
      model.has_head() ? BlockMatrix<memory_space, const T>() : m_pipeline->gradients_in().receive(exec);
  if (model.has_embedding()) {
    if (auto* const tied = m_pipeline->tied())
      Kokkos::deep_copy(exec, tied_gradient(model), tied->receive(exec));
    return model.backward_states(exec, m_batch.ids, dy);
  }
  const BlockMatrix<memory_space, T> dx = m_pipeline->gradients_out().outgoing();
  if (model.has_head())
    model.backward_embedded(exec, m_batch.targets, m_dloss, m_batch.loss, dx, m_options.loss);
  else
    model.backward_states_embedded(exec, dy, dx);
  m_pipeline->gradients_out().send(exec);
  if (auto* const tied = m_pipeline->tied(); tied && model.has_head()) {
    const auto gradient = tied_gradient(model);
    Kokkos::deep_copy(exec, tied->outgoing(), gradient);
    tied->send(exec);
    Kokkos::deep_copy(exec, gradient, C(0));  // what follows is of the next micro-batch alone
  }
}

// Of the embedding, which is the first parameter where it is tied.
template <class Exec, Scalar T>
BlockMatrix<typename Exec::memory_space, compute_t<T>> Trainer<Exec, T>::tied_gradient(
    const Model& model) const {
  const TensorRef gradient = model.trained().front().gradient;
  const auto words = static_cast<std::size_t>(gradient.extent[0]),
             hidden = static_cast<std::size_t>(gradient.extent[1]);
  return BlockMatrix<memory_space, C>(static_cast<C*>(gradient.data),
                                      Kokkos::LayoutStride(words, hidden, hidden, 1));
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::run_task(const Exec& exec, const PipelineTask& task, std::size_t first,
                                std::span<const TokenSequence> part) {
  Region region(task.work == PipelineWork::forward    ? "pipeline_forward"
                : task.work == PipelineWork::backward ? "pipeline_backward"
                                                      : "pipeline_weights");
  Model& model = m_models[static_cast<std::size_t>(task.part)];
  model.use_slot(task.micro_batch % m_pipeline->slots(task.part));
  const auto dropping = dropout(first);
  if (task.work == PipelineWork::weights) return model.backward_weights(exec);
  upload(exec, part);
  if (task.work == PipelineWork::forward)
    run_forward(exec, model);
  else
    run_backward(exec, model);
}

// Of a micro-batch that others have who share the gradients of this stage: they wait for each group that it completes.
template <class Exec, Scalar T>
void Trainer<Exec, T>::skip_task(const Exec& exec, const PipelineTask& task) {
  const auto part = static_cast<std::size_t>(task.part);
  const std::size_t first = Impl::first_group(m_models, part);
  for (const std::size_t group : Impl::groups_after(m_models[part], task.work, m_pipeline->shape().schedule))
    m_parallel->add_nothing(exec, first + group);
}

// The sum over the tokens of each micro-batch, which all ranks get from the last.
template <class Exec, Scalar T>
std::vector<double> Trainer<Exec, T>::pipeline_losses(const Exec& exec,
                                                      std::span<const TokenSequence> sequences, Pass pass) {
  std::vector<std::pair<std::size_t, std::span<const TokenSequence>>> batches;
  for_micro_batches(sequences, [&](std::size_t first, std::span<const TokenSequence> part) {
    batches.emplace_back(first, part);
  });
  const std::int64_t count = std::ssize(batches);
  std::vector<double> sums(batches.size());  // the last stage has them
  const auto note_losses = [&](std::int64_t micro_batch) {
    transfer(exec, *m_ledger, m_host.loss, m_batch.loss);
    exec.fence("kformer::Trainer: losses of a micro-batch");
    const auto at = static_cast<std::size_t>(micro_batch);
    sums[at] = sum_of_host_losses(batches[at].second.size());
  };
  if (pass == Pass::forward) {
    for (std::int64_t m = 0; m < count; ++m) {
      upload(exec, batches[static_cast<std::size_t>(m)].second);
      for (Model& part : m_models) run_forward(exec, part);
      if (m_models.back().has_head()) {
        m_models.back().loss(exec, m_batch.targets, m_batch.loss, m_options.loss);
        note_losses(m);
      }
      exec.fence("kformer::Trainer: the next micro-batch overwrites the tokens");
    }
  } else {
    // Without the micro-batches that this rank does not have, the work is in the order of those that it has.
    const std::int64_t rounds = m_parallel->divides_gradients() ? m_parallel->rounds() : count;
    for (const PipelineTask& task : pipeline_work(m_pipeline->shape(), m_pipeline->rank(), rounds)) {
      if (task.micro_batch >= count) {
        skip_task(exec, task);
      } else {
        const auto& [first, part] = batches[static_cast<std::size_t>(task.micro_batch)];
        run_task(exec, task, first, part);
        if (task.work == PipelineWork::backward && m_models[static_cast<std::size_t>(task.part)].has_head())
          note_losses(task.micro_batch);
        exec.fence("kformer::Trainer: the next micro-batch overwrites the tokens");
      }
      if (m_parallel->divides_gradients()) {
        if (task.work == last_work(m_pipeline->shape().schedule) && task.part == 0)
          m_parallel->add_micro_batch(exec);
      } else if (task.work != PipelineWork::forward) {
        m_parallel->add_part(exec, static_cast<std::size_t>(task.part), task.micro_batch, task.work);
      }
    }
  }
  m_pipeline->finish();
  const std::vector<double> all = m_pipeline->ranks().gather_values(exec, sums, "stage losses");
  return {all.end() - count, all.end()};
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::logits(const Exec& exec, std::int64_t sequence, std::int64_t token,
                              const BlockMatrix<memory_space, T>& logits) {
  const TokenPlace place = place_of(sequence, token);
  auto* const context = model().context_ranks();
  if (Model& last = m_models.back(); last.has_head()) {
    if (!context || context->slice().rank == place.rank) last.logits(exec, place.row, logits);
    if (context) context->ranks().broadcast(exec, logits, place.rank, "logits");
  }
  if (m_pipeline) m_pipeline->ranks().broadcast(exec, logits, m_pipeline->last(), "logits");
}

}  // namespace kformer
