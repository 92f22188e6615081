// SPDX-License-Identifier: MIT
#include "kformer/train/policy_loss.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"
#include "train/require.hpp"

namespace kformer {

namespace {

constexpr Impl::Require require{"policy_loss"};

/// The largest exponent whose exponential is taken; a sum over all tokens of a training remains finite.
constexpr double largest_exponent = 300;

/// A function and its derivative.
struct Curve {
  double value, slope;
};

/// exp(x), continued by its tangent.
Curve exponential(double x) {
  if (x <= largest_exponent) return {std::exp(x), std::exp(x)};
  const double slope = std::exp(largest_exponent);
  return {slope * (1 + x - largest_exponent), slope};
}

/// k3(x) = exp(x) − x − 1, which is about x²/2 near 0.
Curve k3(double x) {
  if (x <= largest_exponent) return {std::expm1(x) - x, std::expm1(x)};
  const Curve e = exponential(x);
  return {e.value - x - 1, e.slope - 1};
}

void check_options(const PolicyOptions& options) {
  Impl::require_enumerator("policy_loss", "kind", options.kind);
  require(std::isfinite(options.epsilon_low) && options.epsilon_low >= 0 &&
              std::isfinite(options.epsilon_high) && options.epsilon_high >= 0,
          "epsilon_low and epsilon_high must be finite and not negative, got ", options.epsilon_low, " and ",
          options.epsilon_high);
  require(options.delta == 0 || (std::isfinite(options.delta) && options.delta > 1 + options.epsilon_high),
          "delta must be finite and more than 1 + epsilon_high = ", 1 + options.epsilon_high,
          ", or 0 for no limit, got ", options.delta);
  require(std::isfinite(options.beta) && options.beta >= 0, "beta must be finite and not negative, got ",
          options.beta);
  require(options.kind != PolicyKind::dr_grpo || options.max_completion_tokens >= 1,
          "dr_grpo divides by max_completion_tokens; expected at least 1, got ", options.max_completion_tokens);
}

/// The operands with their extents, for error texts.
std::string extents(const PolicyLossOperands& o) {
  std::ostringstream text;
  text << "logp[" << o.logp.size() << "] old_logp[" << o.old_logp.size() << "] reference_logp["
       << o.reference_logp.size() << "] mask[" << o.mask.size() << "] offsets[" << o.offsets.size()
       << "] advantages[" << o.advantages.size() << "]";
  return text.str();
}

/// What is read of the operands, once it is known to be there.
class Completions {
 public:
  Completions(const PolicyLossOperands& operands, const char* function) : m_operands(operands) {
    const PolicyLossOperands& o = operands;
    const auto expect = [&](bool good, const std::string& expected) {
      if (!good)
        throw DimensionMismatch(std::string("kformer::") + function + ": extents do not match: " + extents(o) +
                                "; expected " + expected);
    };
    expect(o.old_logp.empty() || o.old_logp.size() == o.logp.size(), "old_logp to be empty or as logp");
    expect(o.mask.empty() || o.mask.size() == o.logp.size(), "mask to be empty or as logp");
    expect(o.offsets.size() == o.advantages.size() + 1, "one offset more than advantages");
    expect(
        o.offsets.front() == 0 && std::ranges::is_sorted(o.offsets) && o.offsets.back() == std::ssize(o.logp),
        "offsets to ascend from 0 to the number of tokens");
  }

  std::size_t size() const { return m_operands.advantages.size(); }
  std::size_t begin(std::size_t completion) const {
    return static_cast<std::size_t>(m_operands.offsets[completion]);
  }
  std::size_t end(std::size_t completion) const { return begin(completion + 1); }
  bool counts(std::size_t token) const { return m_operands.mask.empty() || m_operands.mask[token] != 0; }

  /// How many tokens of a completion count.
  std::int64_t tokens(std::size_t completion) const {
    std::int64_t count = 0;
    for (std::size_t t = begin(completion); t < end(completion); ++t) count += counts(t) ? 1 : 0;
    return count;
  }

 private:
  const PolicyLossOperands& m_operands;
};

PolicyBatch batch_of(const Completions& completions) {
  PolicyBatch batch{.completions = static_cast<std::int64_t>(completions.size())};
  for (std::size_t i = 0; i < completions.size(); ++i)
    batch.tokens += static_cast<double>(completions.tokens(i));
  return batch;
}

void check_batch(const PolicyBatch& given, const PolicyBatch& here, PolicyKind kind) {
  const auto expect = [](bool good, const char* what, double got, double least) {
    if (good) return;
    std::ostringstream text;
    text << "kformer::policy_loss: the batch has " << got << ' ' << what << "; this micro-batch has " << least
         << ". Add up what policy_batch returns for all micro-batches of the step";
    throw DimensionMismatch(text.str());
  };
  if (kind == PolicyKind::grpo || kind == PolicyKind::dr_grpo)
    expect(given.completions >= here.completions, "completions", static_cast<double>(given.completions),
           static_cast<double>(here.completions));
  // A step of dapo may have more tokens than the mean over the steps of its generation.
  const double least = kind == PolicyKind::dapo ? std::min(here.tokens, 1e-300) : here.tokens;
  if (kind == PolicyKind::bnpo || kind == PolicyKind::dapo)
    expect(std::isfinite(given.tokens) && given.tokens >= least, "tokens", given.tokens, here.tokens);
}

/// The sum over the tokens of one micro-batch.
class Sum {
 public:
  Sum(const PolicyLossOperands& operands, const PolicyOptions& options, const Completions& completions)
      : m_operands(operands), m_options(options), m_completions(completions) {
    m_result.dlogp.assign(operands.logp.size(), 0);
  }

  void add(std::size_t completion, double weight) {
    const double advantage = m_operands.advantages[completion];
    require(std::isfinite(advantage), "completion ", completion, " has the advantage ", advantage,
            "; expected a finite number");
    for (std::size_t t = m_completions.begin(completion); t < m_completions.end(completion); ++t)
      if (m_completions.counts(t)) {
        check_token(completion, t);
        const Curve loss = token(t, advantage);
        m_result.loss += weight * loss.value;
        m_result.dlogp[t] = weight * loss.slope;
      }
  }

  PolicyLoss result() && { return std::move(m_result); }

 private:
  double old_logp(std::size_t t) const {
    return m_operands.old_logp.empty() ? m_operands.logp[t] : m_operands.old_logp[t];
  }

  void check_token(std::size_t completion, std::size_t t) const {
    const auto check = [&](double value, const char* role) {
      require(std::isfinite(value), "completion ", completion, ": token ", t - m_completions.begin(completion),
              " has the ", role, ' ', value,
              "; expected a finite number. A model has diverged, or the token should not count");
    };
    check(m_operands.logp[t], "logp");
    check(old_logp(t), "old_logp");
    if (m_options.beta > 0) check(m_operands.reference_logp[t], "reference_logp");
  }

  /// ℓ of a token that counts, and its derivative by log π.
  Curve token(std::size_t t, double advantage) {
    const Curve ratio = exponential(m_operands.logp[t] - old_logp(t));
    Curve loss = clipped(ratio, advantage);
    PolicyStatistics& statistics = m_result.statistics;
    ++statistics.tokens;
    statistics.ratio_sum += ratio.value;
    if (m_options.beta > 0) {
      const Curve divergence = k3(m_operands.reference_logp[t] - m_operands.logp[t]);
      statistics.kl_sum += divergence.value;
      loss.value += m_options.beta * divergence.value;
      loss.slope -= m_options.beta * divergence.slope;
    }
    return loss;
  }

  Curve clipped(const Curve& ratio, double advantage) {
    const double low = 1 - m_options.epsilon_low, high = 1 + m_options.epsilon_high;
    if (ratio.value < low && advantage < 0) {
      ++m_result.statistics.clipped_low;
      return {-low * advantage, 0};
    }
    if (ratio.value > high && advantage > 0) {
      ++m_result.statistics.clipped_high;
      return {-high * advantage, 0};
    }
    if (m_options.delta > 0 && ratio.value > m_options.delta) return {-m_options.delta * advantage, 0};
    return {-ratio.value * advantage, -ratio.slope * advantage};
  }

  const PolicyLossOperands& m_operands;
  const PolicyOptions& m_options;
  const Completions& m_completions;
  PolicyLoss m_result;
};

}  // namespace

PolicyStatistics& PolicyStatistics::operator+=(const PolicyStatistics& other) {
  tokens += other.tokens;
  clipped_low += other.clipped_low;
  clipped_high += other.clipped_high;
  ratio_sum += other.ratio_sum;
  kl_sum += other.kl_sum;
  return *this;
}

PolicyBatch policy_batch(const PolicyLossOperands& operands) {
  return batch_of(Completions(operands, "policy_batch"));
}

PolicyLoss policy_loss(const PolicyLossOperands& operands, const PolicyOptions& options,
                       const PolicyBatch& batch) {
  check_options(options);
  const Completions completions(operands, "policy_loss");
  if (operands.reference_logp.size() != (options.beta > 0 ? operands.logp.size() : 0))
    throw DimensionMismatch(
        "kformer::policy_loss: extents do not match: " + extents(operands) + "; expected reference_logp " +
        (options.beta > 0 ? "as logp, because beta is positive" : "to be empty, because beta is 0"));
  check_batch(batch, batch_of(completions), options.kind);
  const auto share = [](auto count) { return 1 / std::max(static_cast<double>(count), 1.0); };
  Sum sum(operands, options, completions);
  for (std::size_t i = 0; i < completions.size(); ++i) {
    const std::int64_t extent = operands.offsets[i + 1] - operands.offsets[i];
    if (options.kind == PolicyKind::dr_grpo && extent > options.max_completion_tokens)
      throw DimensionMismatch(
          "kformer::policy_loss: completion " + std::to_string(i) + " has " + std::to_string(extent) +
          " tokens; expected at most max_completion_tokens = " + std::to_string(options.max_completion_tokens));
    switch (options.kind) {
      case PolicyKind::grpo:
        sum.add(i, share(completions.tokens(i)) * share(batch.completions));
        break;
      case PolicyKind::dr_grpo:
        sum.add(i, share(options.max_completion_tokens) * share(batch.completions));
        break;
      case PolicyKind::dapo:
      case PolicyKind::bnpo:
        sum.add(i, batch.tokens > 0 ? 1 / batch.tokens : 0);
        break;
    }
  }
  return std::move(sum).result();
}

PolicyLoss policy_loss(const PolicyLossOperands& operands, const PolicyOptions& options) {
  return policy_loss(operands, options, batch_of(Completions(operands, "policy_loss")));
}

}  // namespace kformer
