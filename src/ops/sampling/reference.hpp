// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kformer/ops/sampling.hpp"
#include "ops/common/host_tensor.hpp"
#include "ops/sampling/logits.hpp"
#include "ops/sampling/philox.hpp"

/// \file
/// Sampling in textbook order, with sorted tokens: the oracle.

namespace kformer::Impl::reference {

/// A token that can still be chosen.
struct SamplingCandidate {
  std::int64_t id;
  double logit;
  std::uint64_t weight;
};

/// The logits that count, −∞ for the others. `C` is the type of the kernels' arithmetic: +∞ is its greatest
/// number.
template <class C>
std::vector<double> counted_row(const HostTensor<double>& logits, std::int64_t row) {
  std::vector<double> z;
  for (std::int64_t v = 0; v < logits.extent(1); ++v) {
    const C logit = static_cast<C>(logits(row, v));
    z.push_back(std::isnan(logit) ? -std::numeric_limits<double>::infinity()
                                  : static_cast<double>(std::min(logit, std::numeric_limits<C>::max())));
  }
  return z;
}

/// What the repetition penalty makes of a logit that counts, rounded to `C`; finite if the logit is.
template <class C>
double penalised(double logit, double penalty) {
  if (std::isinf(logit)) return logit;
  const C z = static_cast<C>(logit), by = static_cast<C>(penalty), most = std::numeric_limits<C>::max();
  return static_cast<double>(std::clamp(logit > 0 ? z / by : z * by, -most, most));
}

/// log softmax(z)[token]; NaN where nothing is above −∞.
template <class Real>
Real log_softmax(const std::vector<double>& z, std::int64_t token) {
  const Real largest = static_cast<Real>(*std::max_element(z.begin(), z.end()));
  if (largest == -std::numeric_limits<Real>::infinity()) return std::numeric_limits<Real>::quiet_NaN();
  Real sum = 0;
  for (const double value : z) sum += exp(static_cast<Real>(value) - largest);
  return static_cast<Real>(z[token]) - largest - log(sum);
}

/// The candidates that the filters leave, the most probable first, with their weights.
inline std::vector<SamplingCandidate> sampling_candidates(const std::vector<double>& z,
                                                          const SamplingOptions& options) {
  std::vector<SamplingCandidate> left;
  for (std::size_t v = 0; v < z.size(); ++v)
    if (z[v] > -std::numeric_limits<double>::infinity())
      left.push_back({static_cast<std::int64_t>(v), z[v], 0});
  std::stable_sort(left.begin(), left.end(), [](const auto& a, const auto& b) { return a.logit > b.logit; });
  if (options.top_k > 0 && static_cast<std::size_t>(options.top_k) < left.size())
    left.resize(static_cast<std::size_t>(options.top_k));
  if (left.empty() || options.temperature == 0) return left;
  const double one = std::ldexp(1.0, weight_bits);
  std::uint64_t all = 0;
  for (auto& candidate : left) {
    const double share = exp((candidate.logit - left[0].logit) / options.temperature);
    candidate.weight = static_cast<std::uint64_t>(share * one);
    all += candidate.weight;
  }
  std::sort(left.begin(), left.end(), [](const auto& a, const auto& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  });
  std::uint64_t sum = 0;
  std::size_t kept = 0;
  while (kept < left.size() && static_cast<double>(sum) < options.top_p * static_cast<double>(all))
    sum += left[kept++].weight;
  left.resize(options.top_p < 1 ? std::max<std::size_t>(kept, 1) : left.size());
  std::erase_if(left, [&](const auto& c) { return static_cast<double>(c.weight) < options.min_p * one; });
  return left;
}

/// The token that a random number draws from the candidates, in the order of their ids.
inline std::int64_t drawn_token(std::vector<SamplingCandidate> left, std::uint64_t random) {
  std::sort(left.begin(), left.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  std::uint64_t all = 0;
  for (const auto& candidate : left) all += candidate.weight;
  std::uint64_t rest = scaled_below(all, random);
  for (const auto& candidate : left) {
    if (rest < candidate.weight) return candidate.id;
    rest -= candidate.weight;
  }
  return -1;
}

template <class Real>
struct SamplingResult {
  std::vector<std::int32_t> tokens;
  HostTensor<Real> log_probabilities;
};

template <class C, class Real>
SamplingResult<Real> sample(const HostTensor<double>& logits, const HostTensor<double>& history,
                            const HostTensor<double>& lengths, const HostTensor<double>& positions,
                            const SamplingOptions& options) {
  const std::int64_t rows = logits.extent(0);
  SamplingResult<Real> result{{}, HostTensor<Real>({rows}, std::numeric_limits<Real>::quiet_NaN())};
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<double> z = counted_row<C>(logits, row);
    std::vector<double> changed = z;
    const std::int64_t capacity = history.present() ? history.extent(1) : 0;
    for (std::int64_t i = 0; i < capacity && i < lengths(row); ++i) {
      const auto id = static_cast<std::int64_t>(history(row, i));
      if (id < 0 || id >= logits.extent(1)) continue;
      changed[id] = penalised<C>(z[id], options.repetition_penalty);
    }
    const auto left = sampling_candidates(changed, options);
    std::int64_t token = left.empty() ? -1 : left[0].id;
    if (!left.empty() && options.temperature > 0)
      token = drawn_token(left, random_number(options.seed, options.first_stream + row,
                                              static_cast<std::int32_t>(positions(row))));
    result.tokens.push_back(static_cast<std::int32_t>(token));
    if (token >= 0) result.log_probabilities(row) = log_softmax<Real>(z, token);
  }
  return result;
}

template <class C, class Real>
HostTensor<Real> token_log_probabilities(const HostTensor<double>& logits, const HostTensor<double>& ids) {
  HostTensor<Real> result({logits.extent(0)}, std::numeric_limits<Real>::quiet_NaN());
  for (std::int64_t row = 0; row < logits.extent(0); ++row) {
    const auto id = static_cast<std::int64_t>(ids(row));
    if (id >= 0 && id < logits.extent(1)) result(row) = log_softmax<Real>(counted_row<C>(logits, row), id);
  }
  return result;
}

}  // namespace kformer::Impl::reference
