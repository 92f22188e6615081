// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>

#include "kformer/parallel/tree_order.hpp"
#include "kformer/train/trainer.hpp"
#include "model/layer_options.hpp"
#include "model/tensor/slices.hpp"
#include "ops/cross_entropy/checks.hpp"
#include "train/require.hpp"
#include "train/trainer_arrays.hpp"
#include "train/trainer_objective.hpp"
#include "train/trainer_pipeline.hpp"
#include "train/trainer_tokens.hpp"

/// \file
/// Definitions of Trainer's members.

namespace kformer {

namespace Impl {

/// The tokens of this rank.
/// \throws NotSupported if options do not fit together
inline LayerShape checked_shape(const TrainerOptions& options) {
  LayerShape shape = options.shape;
  const Require require{"Trainer"};
  require(shape.batch > 0 && shape.seq_len > 0, "`shape` must hold at least one token, got batch ", shape.batch,
          " and seq_len ", shape.seq_len);
  const int context = divides_tokens(options.layer) ? options.layer.context->size() : 1;
  require(shape.seq_len % (2 * context) == 0 || context == 1, "shape.seq_len ", shape.seq_len,
          " is no multiple of ", 2 * context,
          ", two chunks for each of the ranks that divide the tokens (context)");
  require(context == 1 || options.parallel.ranks,
          "ranks divide the tokens (context), so that gradients are sums over ranks; set parallel.ranks to "
          "RankGrid::replicas()");
  shape.seq_len /= context;
  return shape;
}

}  // namespace Impl

template <class Exec, Scalar T>
Trainer<Exec, T>::Trainer(const LlamaConfig& config, const TrainerOptions& options, Ledger& ledger)
    : m_options(options),
      m_ledger(ledger.shared_from_this()),
      m_shape(Impl::checked_shape(options)),
      m_length(m_shape.seq_len),
      m_pipeline(make_pipeline(config, options, Impl::state_rows(m_shape, options.layer), ledger)),
      m_models(make_models(config, options, m_shape, m_pipeline.get(), ledger)),
      m_parallel(make_parallel(ledger)),
      m_optimizer(m_parallel ? m_parallel->updated() : trained(), options.optimizer, ledger),
      m_spikes(options.spikes),
      m_stride(options.shape.batch) {
  options.schedule.check();
  Impl::require_options(Operands("Trainer", {}), options.loss, compute_dtype(dtype_of<T>));
  Arena<memory_space> arena;
  arena.add(m_dloss, m_shape.rows());
  place(ledger, MemoryClass::workspace, "Trainer::batch", arena, m_batch);
  Arena<HostStagingSpace<memory_space>> host;
  place(ledger, MemoryClass::io, "Trainer::staging", host, m_host);
}

template <class Exec, Scalar T>
template <class Space>
void Trainer<Exec, T>::place(Ledger& ledger, MemoryClass memory_class, const char* label, Arena<Space>& arena,
                             Batch<Space>& batch) {
  const std::int64_t rows = m_shape.rows();
  arena.add(batch.ids, rows);
  arena.add(batch.targets, rows);
  arena.add(batch.loss, rows);
  if (m_options.layer.packed) {
    arena.add(batch.starts, m_options.shape.rows() + 1);
    arena.add(batch.positions, rows);
  }
  batch.block = arena.allocate(ledger, memory_class, label);
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::prepare(const Exec& exec) {
  for (Model& model : m_models) model.prepare(exec);
  m_optimizer.prepare(exec);
  m_spikes = LossSpikes(m_options.spikes);
  m_steps = 0;
  m_prepared = true;
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::launch(const Exec& exec, Pass pass) {
  const auto ids = of_tokens(m_batch.ids), targets = of_tokens(m_batch.targets);
  const auto loss = of_tokens(m_batch.loss);
  model().forward(exec, ids, m_packed);
  if (pass == Pass::forward)
    model().loss(exec, targets, loss, m_options.loss);
  else
    model().backward(exec, ids, targets, of_tokens(m_dloss), loss, m_options.loss);
}

// `f(first, part)`: the number of the first sequence in the step, and the sequences, while the model has their length.
template <class Exec, Scalar T>
template <class F>
void Trainer<Exec, T>::for_micro_batches(std::span<const TokenSequence> sequences, F f) {
  struct Whole {
    Trainer& trainer;
    ~Whole() { trainer.use_length(trainer.m_shape.seq_len); }
  } const whole_at_the_end{*this};
  const auto batch = static_cast<std::size_t>(m_options.shape.batch);
  auto first = static_cast<std::size_t>(m_first);
  for (std::size_t own = 0; own < sequences.size(); own += batch) {
    const auto part = sequences.subspan(own, std::min(batch, sequences.size() - own));
    use_length(length_of(part));
    f(first, part);
    first += static_cast<std::size_t>(m_stride);
  }
}

// Dropout of the adapters in a micro-batch, for as long as what it returns exists.
template <class Exec, Scalar T>
std::shared_ptr<void> Trainer<Exec, T>::dropout(std::size_t first) {
  const auto set = [this](const std::optional<DropoutDraw>& draw) {
    for (Model& model : m_models) model.set_dropout(draw);
  };
  set(DropoutDraw{m_options.dropout_seed, m_steps, static_cast<std::int64_t>(first) * m_options.shape.seq_len});
  return {nullptr, [set](void*) { set({}); }};
}

// Leaves the losses of a micro-batch in m_host.
template <class Exec, Scalar T>
void Trainer<Exec, T>::compute_losses(const Exec& exec, std::span<const TokenSequence> part, Pass pass) {
  upload(exec, part);
  launch(exec, pass);
  transfer(exec, *m_ledger, of_tokens(m_host.loss), of_tokens(m_batch.loss));
  exec.fence("kformer::Trainer: losses of a micro-batch");
}

// Over the tokens of a micro-batch.
template <class Exec, Scalar T>
double Trainer<Exec, T>::sum_of_host_losses(std::size_t sequences) const {
  double sum = 0;
  for (std::size_t i = 0; i < sequences * static_cast<std::size_t>(m_length); ++i)
    sum += static_cast<double>(m_host.loss(i));
  return sum;
}

// The sum over the tokens of each micro-batch.
template <class Exec, Scalar T>
std::vector<double> Trainer<Exec, T>::losses(const Exec& exec, std::span<const TokenSequence> sequences,
                                             Pass pass) {
  if (m_pipeline) return pipeline_losses(exec, sequences, pass);
  std::vector<double> sums;
  for_micro_batches(sequences, [&](std::size_t first, std::span<const TokenSequence> part) {
    const auto dropping = pass == Pass::forward ? nullptr : dropout(first);
    compute_losses(exec, part, pass);
    if (pass == Pass::forward_and_backward && m_parallel) m_parallel->add_micro_batch(exec);
    sums.push_back(sum_of_host_losses(part.size()));
  });
  return sums;
}

// A step without targets ends here: its report says that it was skipped.
template <class Exec, Scalar T>
StepReport Trainer<Exec, T>::begin_step(const Exec& exec, std::span<const TokenSequence> sequences) {
  StepReport report{.step = m_steps,
                    .loss = std::numeric_limits<double>::quiet_NaN(),
                    .learning_rate = m_options.schedule.at(m_steps),
                    .loss_scale = m_optimizer.scaler().scale(),
                    .tokens = checked_targets("step", sequences),
                    .computed = computed_of(sequences)};
  if (m_models.front().context_ranks()) report.tokens = count_targets(sequences, own_tokens(m_length));
  const bool adds_up = m_options.layer.accumulate || Impl::adds_up(m_options.parallel);
  if (!adds_up && std::ssize(sequences) > m_options.shape.batch)
    throw NotSupported("kformer::Trainer::step: got " + std::to_string(sequences.size()) +
                       " sequences for a micro-batch of " + std::to_string(m_options.shape.batch) +
                       " (shape.batch), but backward overwrites the gradients; set layer.accumulate");
  if (m_parallel) {
    const StepShare& share = m_parallel->begin_step(exec, std::ssize(sequences), report.tokens,
                                                    m_options.shape.batch, report.computed);
    m_first = share.first;
    m_stride = share.stride;
    report.tokens = share.tokens;
    report.computed = share.computed;
  }
  if (report.tokens == 0) {
    ++m_steps;
    report.skipped = true;
    report.computed = {};
    return report;
  }
  for (Model& part : m_models) part.zero_gradients(exec);
  // Without `ZeroStage::gradients` the parts of a pipeline are reduced at the end.
  if (m_parallel && (!m_pipeline || m_parallel->divides_gradients())) watch_gradients();
  return report;
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::watch_gradients() {
  for (std::size_t part = 0; part < m_models.size(); ++part)
    m_models[part].on_gradients(
        [this, first = Impl::first_group(m_models, part)](const Exec& e, std::size_t group) {
          m_parallel->add_group(e, first + group);
        });
}

// `losses` are those of this rank's micro-batches; the loss of the step is their sum over all ranks, divided by `count`.
template <class Exec, Scalar T>
void Trainer<Exec, T>::finish_step(const Exec& exec, StepReport& report, std::span<const double> losses,
                                   double count) {
  ++m_steps;
  for (Model& part : m_models) part.on_gradients({});
  report.gradient_norm =
      m_parallel ? m_optimizer.set_norm(exec, m_parallel->reduce(exec)) : m_optimizer.measure(exec);
  report.loss = (m_parallel ? m_parallel->sum(exec, losses) : Impl::sum_of(losses)) / count;
  if (std::isfinite(report.gradient_norm) && !m_spikes.accept(report.loss, report.gradient_norm)) {
    m_optimizer.skip();
    report.skipped = true;
  } else {
    report.skipped = !m_optimizer.update(exec, report.learning_rate);
    if (m_parallel && !report.skipped) m_parallel->publish(exec);
  }
}

template <class Exec, Scalar T>
StepReport Trainer<Exec, T>::step(const Exec& exec, std::span<const TokenSequence> sequences) {
  StepReport report = begin_step(exec, sequences);
  if (report.skipped) return report;
  const double count = static_cast<double>(report.tokens);
  Kokkos::deep_copy(exec, m_dloss, static_cast<C>(report.loss_scale / count));
  finish_step(exec, report, losses(exec, sequences, Pass::forward_and_backward), count);
  return report;
}

template <class Exec, Scalar T>
double Trainer<Exec, T>::evaluate(const Exec& exec, std::span<const TokenSequence> sequences) {
  const std::int64_t targets = checked_targets("evaluate", sequences);
  return sum_over_context(exec, Impl::sum_of(losses(exec, sequences, Pass::forward))) /
         static_cast<double>(targets);
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::forward(const Exec& exec, std::span<const TokenSequence> sequences) {
  checked_targets("forward", sequences);
  if (std::ssize(sequences) > m_options.shape.batch)
    throw DimensionMismatch("kformer::Trainer::forward: got " + std::to_string(sequences.size()) +
                            " sequences; expected at most " + std::to_string(m_options.shape.batch) +
                            " (shape.batch)");
  upload(exec, sequences);
  for (Model& part : m_models) run_forward(exec, part);
  if (m_pipeline) m_pipeline->finish();
}

template <class Exec, Scalar T>
TrainerState Trainer<Exec, T>::state() const {
  return {m_steps, m_optimizer.state(), m_spikes.losses(), m_spikes.norms()};
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::restore(const TrainerState& state) {
  if (state.steps < 0)
    throw NotSupported("kformer::Trainer::restore: expected no negative number of steps, got " +
                       std::to_string(state.steps));
  m_optimizer.restore(state.optimizer);
  m_spikes.restore(state.spike_losses, state.spike_norms);
  m_steps = state.steps;
}

}  // namespace kformer
