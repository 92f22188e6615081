// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "kformer/ops/sampling.hpp"
#include "ops/sampling/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Rows of logits to sample from, and the outcome of sampling from them.

namespace kformer::Testing {

/// The operands of `sample`.
template <class T>
struct SamplingTensors {
  std::int64_t rows, vocabulary, capacity;
  TestTensor<Exec, T> logits{{rows, vocabulary}};
  TestTensor<Exec, std::int32_t> history{{rows, capacity}}, lengths{{rows}}, positions{{rows}}, tokens{{rows}};
  TestTensor<Exec, compute_t<T>> log_probabilities{{rows}};

  /// Normal logits, and histories with ids beyond the vocabulary either way and lengths beyond the capacity.
  void randomise(std::mt19937& generator, double scale) {
    logits.random(generator, scale);
    std::uniform_int_distribution<std::int32_t> id(-1, static_cast<std::int32_t>(vocabulary));
    std::uniform_int_distribution<std::int32_t> length(-1, static_cast<std::int32_t>(capacity) + 1);
    std::uniform_int_distribution<std::int32_t> position(0, std::numeric_limits<std::int32_t>::max());
    history.fill([&](std::size_t) { return id(generator); });
    lengths.fill([&](std::size_t) { return length(generator); });
    positions.fill([&](std::size_t) { return position(generator); });
  }

  Impl::Sampling problem(const SamplingOptions& options) const {
    return {logits.ref(), history.ref(),           lengths.ref(), positions.ref(),
            tokens.ref(), log_probabilities.ref(), options};
  }
};

/// Samples once from each of `rows` rows with the same logits.
inline std::vector<std::int32_t> draws(const std::vector<double>& row, std::int64_t rows,
                                       const SamplingOptions& options) {
  const auto vocabulary = static_cast<std::int64_t>(row.size());
  SamplingTensors<double> t{rows, vocabulary, 0};
  t.logits.fill([&](std::size_t i) { return row[i % row.size()]; });
  const auto bytes = sample_workspace_bytes<double>(Exec(), rows, vocabulary, false, options);
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", bytes);
  sample(Exec(), t.logits.template view<2>(), t.positions.template view<1>(), t.tokens.template view<1>(),
         t.log_probabilities.template view<1>(), options, workspace);
  Exec().fence("kformer::Testing::sampling");
  const auto tokens = t.tokens.template read<double>().values();
  return {tokens.begin(), tokens.end()};
}

/// How often each token was drawn; −1 counts at the end.
inline std::vector<int> counts(const std::vector<double>& row, std::int64_t rows,
                               const SamplingOptions& options) {
  std::vector<int> count(row.size() + 1);
  for (const std::int32_t token : draws(row, rows, options))
    ++count[token < 0 ? row.size() : static_cast<std::size_t>(token)];
  return count;
}

/// The tokens that are drawn at all.
inline std::vector<int> drawn_set(const std::vector<double>& row, const SamplingOptions& options) {
  const auto count = counts(row, 4000, options);
  std::vector<int> drawn;
  for (std::size_t v = 0; v < row.size(); ++v)
    if (count[v] > 0) drawn.push_back(static_cast<int>(v));
  if (count.back() > 0) drawn.push_back(-1);
  return drawn;
}

}  // namespace kformer::Testing
