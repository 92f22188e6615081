// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/train/trainer.hpp"

/// \file
/// Definitions of Trainer's members that work with log-probabilities.

namespace kformer {

// Of the losses that compute_losses left.
template <class Exec, Scalar T>
void Trainer<Exec, T>::append_log_probabilities(std::span<const TokenSequence> part,
                                                LogProbabilities& logp) const {
  std::size_t i = 0;
  for (const TokenSequence& s : part) {
    for (const std::int32_t target : std::span(s.targets).first(static_cast<std::size_t>(m_length))) {
      if (target != m_options.loss.ignore_index) logp.values.push_back(-static_cast<double>(m_host.loss(i)));
      ++i;
    }
    logp.offsets.push_back(std::ssize(logp.values));
  }
}

// Backward of a micro-batch after its losses, whose places take the derivatives: by a loss it is minus that by its
// log-probability. Targets without a loss have none.
template <class Exec, Scalar T>
void Trainer<Exec, T>::learn(const Exec& exec, std::span<const TokenSequence> part,
                             const std::vector<double>& dlogp, double scale) {
  std::size_t i = 0, target_with_loss = 0;
  for (const TokenSequence& s : part)
    for (const std::int32_t target : std::span(s.targets).first(static_cast<std::size_t>(m_length))) {
      if (target != m_options.loss.ignore_index)
        m_host.loss(i) = static_cast<C>(-scale * dlogp[target_with_loss++]);
      ++i;
    }
  const auto dloss = of_tokens(m_dloss);
  transfer(exec, *m_ledger, dloss, of_tokens(m_host.loss));
  model().backward(exec, of_tokens(m_batch.ids), of_tokens(m_batch.targets), dloss, of_tokens(m_batch.loss),
                   m_options.loss);
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::require_log_probabilities(const char* function) const {
  if (m_models.front().context_ranks())
    throw NotSupported(std::string("kformer::Trainer::") + function +
                       ": log-probabilities are of whole sequences, whose tokens ranks divide (context)");
  if (m_pipeline)
    throw NotSupported(std::string("kformer::Trainer::") + function +
                       ": log-probabilities go with whole models, whose layers ranks divide (pipeline)");
  if (m_options.loss.label_smoothing != 0 || m_options.loss.z_loss != 0)
    throw NotSupported(
        std::string("kformer::Trainer::") + function +
        ": with label smoothing or z-loss a loss is no log-probability; set loss.label_smoothing and "
        "loss.z_loss to 0");
}

template <class Exec, Scalar T>
StepReport Trainer<Exec, T>::step(const Exec& exec, std::span<const TokenSequence> sequences,
                                  const Objective& objective) {
  require_log_probabilities("step");
  StepReport report = begin_step(exec, sequences);
  if (report.skipped) return report;
  std::vector<double> shares;
  for_micro_batches(sequences, [&](std::size_t first, std::span<const TokenSequence> part) {
    const auto dropping = dropout(first);
    compute_losses(exec, part, Pass::forward);
    LogProbabilities logp;
    append_log_probabilities(part, logp);
    const ObjectiveShare share = objective(first, logp);
    if (share.dlogp.size() != logp.values.size())
      throw DimensionMismatch("kformer::Trainer::step: the objective returned " +
                              std::to_string(share.dlogp.size()) + " derivatives; expected " +
                              std::to_string(logp.values.size()) + ", one for each target of the micro-batch");
    shares.push_back(share.loss);
    learn(exec, part, share.dlogp, report.loss_scale);
    if (m_parallel) m_parallel->add_micro_batch(exec);
  });
  finish_step(exec, report, shares, 1);
  return report;
}

template <class Exec, Scalar T>
LogProbabilities Trainer<Exec, T>::log_probabilities(const Exec& exec, std::span<const TokenSequence> sequences,
                                                     AdapterUse adapters) {
  checked_targets("log_probabilities", sequences);
  require_log_probabilities("log_probabilities");
  struct Switch {
    LlamaModel<Exec, T>& model;
    ~Switch() { model.use_adapters(AdapterUse::on); }
  } const switched{model()};
  model().use_adapters(adapters);
  LogProbabilities logp;
  for_micro_batches(sequences, [&](std::size_t, std::span<const TokenSequence> part) {
    compute_losses(exec, part, Pass::forward);
    append_log_probabilities(part, logp);
  });
  return logp;
}

}  // namespace kformer
