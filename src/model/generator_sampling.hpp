// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/model/generator.hpp"
#include "kformer/ops/cross_entropy.hpp"

/// \file
/// Definitions of Generator's members that choose tokens.

namespace kformer {

// One call for each run of neighbours, so that a sequence draws from the stream of its number.
template <class Exec, Scalar T>
void Generator<Exec, T>::sample_tokens(const Exec& exec) {
  std::vector<std::int32_t> positions;
  for (const std::size_t s : m_live)
    positions.push_back(static_cast<std::int32_t>(m_sequences[s].tokens.size()));
  upload(exec, m_positions, std::move(positions));
  if (penalised()) upload_history(exec);
  for (std::size_t begin = 0, end = 0; begin < m_live.size(); begin = end) {
    for (end = begin + 1; end < m_live.size() && m_live[end] == m_live[end - 1] + 1;) ++end;
    const std::pair<std::size_t, std::size_t> run(begin, end);
    SamplingOptions options = m_options.sampling;
    options.first_stream += static_cast<std::int64_t>(m_live[begin]);
    const auto rows = Kokkos::subview(m_logits, run, Kokkos::ALL);
    const auto at = Kokkos::subview(m_positions, run), to = Kokkos::subview(m_tokens, run);
    const auto scores = Kokkos::subview(m_log_probabilities, run);
    if (penalised())
      sample(exec,
             SampleOperands{.logits = rows,
                            .history = Kokkos::subview(m_history, run, Kokkos::ALL),
                            .history_lengths = Kokkos::subview(m_history_lengths, run),
                            .positions = at,
                            .tokens = to,
                            .log_probabilities = scores},
             options, m_workspace);
    else
      sample(exec, rows, at, to, scores, options, m_workspace);
  }
  if (invariant()) take_losses(exec, m_logits, first(m_tokens, m_live.size()));
}

// The losses of tokens, by the kernel that training computes them with, in place of log-probabilities.
template <class Exec, Scalar T>
void Generator<Exec, T>::take_losses(const Exec& exec, const Matrix& logits, const Integers& tokens) {
  const std::size_t rows = tokens.extent(0);
  cross_entropy_forward(exec, logits, tokens, first(m_log_probabilities, rows), first(m_lse, rows));
}

// Each token of the window once.
template <class Exec, Scalar T>
void Generator<Exec, T>::upload_history(const Exec& exec) {
  std::vector<std::int32_t> lengths;
  for (std::size_t i = 0; i < m_live.size(); ++i) {
    const auto& tokens = m_sequences[m_live[i]].tokens;
    const std::size_t count = std::min(tokens.size(), m_history.extent(1));
    std::vector<std::int32_t> window(tokens.end() - static_cast<std::ptrdiff_t>(count), tokens.end());
    std::ranges::sort(window);
    window.erase(std::unique(window.begin(), window.end()), window.end());
    lengths.push_back(static_cast<std::int32_t>(window.size()));
    upload(exec, Integers(&m_history(i, 0), m_history.extent(1)), std::move(window));
  }
  upload(exec, m_history_lengths, std::move(lengths));
}

}  // namespace kformer
