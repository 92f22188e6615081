// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kformer/parallel/tree_order.hpp"
#include "kformer/train/trainer.hpp"
#include "model/layer_options.hpp"
#include "model/tensor/slices.hpp"

/// \file
/// Definitions of Trainer's members that work with tokens: which of them a rank has, and how they become operands.

namespace kformer {

namespace Impl {

/// In the order of the sum over ranks.
inline double sum_of(std::span<const double> values) {
  if (values.empty()) return 0;
  return tree_sum<double>(std::ssize(values),
                          [&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; });
}

}  // namespace Impl

// How many tokens of its sequences a micro-batch computes: up to the last target with a loss.
template <class Exec, Scalar T>
std::int64_t Trainer<Exec, T>::length_of(std::span<const TokenSequence> part) {
  const LayerOptions& layer = m_options.layer;
  const bool whole =
      layer.packed || !layer.causal || m_pipeline || Impl::divides_tokens(layer) || Impl::divides_states(layer);
  std::int64_t length = whole ? m_shape.seq_len : 0;
  for (const TokenSequence& s : part)
    for (std::int64_t t = std::ssize(s.targets); t > length; --t)
      if (s.targets[static_cast<std::size_t>(t - 1)] != m_options.loss.ignore_index) length = t;
  length = std::min(m_shape.seq_len, std::max<std::int64_t>(1, (length + 7) / 8) * 8);
  return m_models.front().has_room_for(length) ? length : m_shape.seq_len;
}

// In a step.
template <class Exec, Scalar T>
ComputedTokens Trainer<Exec, T>::computed_of(std::span<const TokenSequence> sequences) {
  const bool divided = m_models.front().context_ranks() != nullptr;
  ComputedTokens computed;
  while (!sequences.empty()) {
    const auto part =
        sequences.first(std::min(static_cast<std::size_t>(m_options.shape.batch), sequences.size()));
    computed.add(std::ssize(part), divided ? m_options.shape.seq_len : length_of(part));
    sequences = sequences.subspan(part.size());
  }
  return computed;
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::use_length(std::int64_t length) {
  for (Model& model : m_models) model.use_seq_len(length);
  m_length = length;
}

// Where the tokens of this rank are in a sequence, of which so many are computed.
template <class Exec, Scalar T>
std::vector<TokenRange> Trainer<Exec, T>::own_tokens(std::int64_t length) const {
  auto* const context = m_models.front().context_ranks();
  if (!context) return {{0, length}};
  const Impl::ContextSlice& slice = context->slice();
  return {{slice.first(0), slice.chunk}, {slice.first(1), slice.chunk}};
}

template <class Exec, Scalar T>
TokenPlace Trainer<Exec, T>::place_of(std::int64_t sequence, std::int64_t token) const {
  auto* const context = m_models.front().context_ranks();
  if (!context) return {0, sequence * m_shape.seq_len + token};
  const Impl::ContextSlice& slice = context->slice();
  const std::int64_t half = token / slice.chunk < slice.ranks ? 0 : 1;
  return {slice.owner(token), sequence * m_shape.seq_len + half * slice.chunk + token % slice.chunk};
}

// How many targets have a loss, of all tokens or of this rank's.
template <class Exec, Scalar T>
std::int64_t Trainer<Exec, T>::count_targets(std::span<const TokenSequence> sequences,
                                             std::span<const TokenRange> tokens) const {
  std::int64_t count = 0;
  for (const TokenSequence& s : sequences)
    for (const auto& [begin, size] : tokens)
      count += std::count_if(s.targets.begin() + begin, s.targets.begin() + begin + size,
                             [&](std::int32_t target) { return target != m_options.loss.ignore_index; });
  return count;
}

// How many targets have a loss.
template <class Exec, Scalar T>
std::int64_t Trainer<Exec, T>::checked_targets(const char* function,
                                               std::span<const TokenSequence> sequences) const {
  const std::string name = std::string("kformer::Trainer::") + function;
  if (!m_prepared)
    throw NotSupported(name +
                       ": the states are undefined; call prepare(exec) once, after the weights were written");
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const TokenSequence& s = sequences[i];
    const std::string which = name + ": sequence " + std::to_string(i) + " has ";
    if (std::ssize(s.ids) != m_options.shape.seq_len || std::ssize(s.targets) != m_options.shape.seq_len)
      throw DimensionMismatch(which + std::to_string(s.ids.size()) + " tokens and " +
                              std::to_string(s.targets.size()) + " targets; expected " +
                              std::to_string(m_options.shape.seq_len) + " of both (shape.seq_len)");
    check_starts(which, s.starts);
  }
  const TokenRange all{0, m_options.shape.seq_len};
  return count_targets(sequences, std::span(&all, 1));
}

template <class Exec, Scalar T>
void Trainer<Exec, T>::check_starts(const std::string& sequence,
                                    const std::vector<std::int32_t>& starts) const {
  if (starts.size() > 1 && !m_options.layer.packed)
    throw NotSupported(sequence + std::to_string(starts.size()) +
                       " documents, but attention would mix them; set layer.packed");
  const bool ascend = std::ranges::adjacent_find(starts, std::greater_equal<>()) == starts.end();
  if (!starts.empty() && (starts.front() != 0 || !ascend || starts.back() >= m_options.shape.seq_len))
    throw DimensionMismatch(sequence + "documents whose starts do not ascend from 0 to less than " +
                            std::to_string(m_options.shape.seq_len) + " (shape.seq_len)");
}

// The only place where tokens become operands of the model.
template <class Exec, Scalar T>
void Trainer<Exec, T>::upload(const Exec& exec, std::span<const TokenSequence> sequences) {
  const auto host_ids = of_tokens(m_host.ids), host_targets = of_tokens(m_host.targets);
  std::int32_t *ids = host_ids.data(), *targets = host_targets.data();
  const std::vector<TokenRange> own = own_tokens(m_length);
  for (const TokenSequence& s : sequences)
    for (const auto& [begin, size] : own) {
      ids = std::copy_n(s.ids.begin() + begin, size, ids);
      targets = std::copy_n(s.targets.begin() + begin, size, targets);
    }
  std::fill(ids, host_ids.data() + host_ids.size(), 0);
  std::fill(targets, host_targets.data() + host_targets.size(), m_options.loss.ignore_index);
  transfer(exec, *m_ledger, of_tokens(m_batch.ids), host_ids);
  transfer(exec, *m_ledger, of_tokens(m_batch.targets), host_targets);
  if (m_options.layer.packed) upload_documents(exec, sequences);
}

// All sequences of the micro-batch are one row of documents, and a rank has positions for its tokens of them.
template <class Exec, Scalar T>
void Trainer<Exec, T>::upload_documents(const Exec& exec, std::span<const TokenSequence> sequences) {
  const auto [batch, seq] = m_options.shape;
  const std::vector<TokenRange> own = own_tokens(m_length);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(seq));
  std::int32_t* to = m_host.positions.data();
  std::size_t documents = 0;
  for (std::int64_t i = 0; i < batch; ++i) {
    std::vector<std::int32_t> starts{0};
    if (i < std::ssize(sequences) && !sequences[static_cast<std::size_t>(i)].starts.empty())
      starts = sequences[static_cast<std::size_t>(i)].starts;
    starts.push_back(static_cast<std::int32_t>(seq));
    for (std::size_t d = 0; d + 1 < starts.size(); ++d) {
      m_host.starts(documents++) = static_cast<std::int32_t>(i * seq) + starts[d];
      for (std::int32_t t = starts[d]; t < starts[d + 1]; ++t)
        positions[static_cast<std::size_t>(t)] = t - starts[d];
    }
    for (const auto& [begin, size] : own) to = std::copy_n(positions.begin() + begin, size, to);
  }
  m_host.starts(documents) = static_cast<std::int32_t>(batch * seq);
  const auto range = std::pair<std::size_t, std::size_t>(0, documents + 1);
  const auto starts = Kokkos::subview(m_batch.starts, range);
  transfer(exec, *m_ledger, starts, Kokkos::subview(m_host.starts, range));
  transfer(exec, *m_ledger, m_batch.positions, m_host.positions);
  m_packed = {starts, m_batch.positions};
}

// Of ranks that have parts of the same sequences.
template <class Exec, Scalar T>
double Trainer<Exec, T>::sum_over_context(const Exec& exec, double own) const {
  auto* const context = m_models.front().context_ranks();
  if (!context) return own;
  return Impl::sum_of(context->ranks().gather_values(exec, std::span(&own, 1), "losses"));
}

}  // namespace kformer
