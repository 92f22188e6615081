// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <span>

#include "parallel/ranks.hpp"
#include "train/training_run.hpp"

/// \file
/// Trainings of models that ranks divide.

namespace kformer::Testing {

inline constexpr std::int64_t seq_len = TrainingRun<float>::seq_len, batch = 2, steps = 4;

/// What differs between the models of the tests.
struct Kind {
  const char* name;
  bool bias, qk_norm, tied;
  Recompute recompute = Recompute::none;
  double z_loss = 0;
  AttentionAlgorithm attention = AttentionAlgorithm::flash;
};

inline constexpr Kind kinds[] = {
    {"plain", false, false, false},
    {"bias, tied", true, false, true, Recompute::pointwise},
    {"norms of heads, z-loss", false, true, false, Recompute::layer, 1e-3},
    {"standard", true, true, true, Recompute::layer, 0, AttentionAlgorithm::standard}};

/// Every number of ranks divides it, but not its words.
inline LlamaConfig model(const Kind& kind, int ranks) {
  LlamaConfig config = small_model();
  config.num_attention_heads = 2 * ranks;
  config.num_key_value_heads = ranks;
  config.head_dim = 4;
  config.intermediate_size = 5 * ranks;
  config.attention_bias = kind.bias;
  config.qk_norm = kind.qk_norm;
  config.tie_word_embeddings = kind.tied;
  return config;
}

inline TrainerOptions options_of(const Kind& kind) {
  TrainerOptions options = some_trainer_options(batch);
  options.layer.recompute = kind.recompute;
  options.layer.attention = kind.attention;
  options.loss.z_loss = kind.z_loss;
  // An update g/(√v + eps) magnifies the rounding of a gradient that is 0 but for rounding by 1/eps.
  options.optimizer.eps = 1e-4;
  return options;
}

/// The weights that a rank has, and its adapters.
template <class T>
std::vector<Parameter> parameters_of(Trainer<Exec, T>& trainer) {
  std::vector<Parameter> all;
  for (auto& part : trainer.parts()) {
    std::ranges::move(part.parameters(), std::back_inserter(all));
    std::ranges::move(part.adapters(), std::back_inserter(all));
  }
  return all;
}

/// Random numbers that depend on the name of an array alone; small, so that steps magnify no rounding.
inline HostTensor<double> random_adapter(const Parameter& p) {
  std::mt19937 generator(static_cast<unsigned>(std::hash<std::string>()(p.name)));
  std::normal_distribution<double> normal;
  auto values = p.weight.rank == 1 ? HostTensor<double>({p.weight.extent[0]})
                                   : HostTensor<double>({p.weight.extent[0], p.weight.extent[1]});
  for (double& v : values.values()) v = 0.1 * normal(generator);
  return values;
}

/// Changes the random sequences of a step.
using EditSequences = std::function<void(std::vector<TokenSequence>&)>;

/// A training of a few steps on some sequences.
template <class T>
struct Run {
  std::shared_ptr<Ledger> ledger = Ledger::create();
  Trainer<Exec, T> trainer;
  std::vector<StepReport> reports;
  std::vector<double> evaluations;

  Run(const TrainerOptions& options, const LlamaConfig& config, std::int64_t first, std::int64_t sequences,
      const EditSequences& edit = {})
      : trainer(config, options, *ledger) {
    const ModelInputs inputs = ModelInputs::random(config, {1, 1});
    for (const Parameter& p : parameters_of(trainer)) {
      const auto weight = inputs.weights.find(p.name);
      write_parameter<T>(p.weight,
                         weight == inputs.weights.end() ? random_adapter(p) : part_of_array(weight->second, p));
    }
    trainer.prepare(Exec());
    for (std::int64_t step = 0; step < steps; ++step) {
      auto all = random_sequences(8, options.shape.seq_len, 100 + static_cast<unsigned>(step));
      if (edit) edit(all);
      const auto begin = all.begin() + first;
      const std::vector<TokenSequence> own(begin, begin + sequences);
      reports.push_back(trainer.step(Exec(), own));
      evaluations.push_back(trainer.evaluate(Exec(), all));
    }
  }

  std::map<std::string, std::vector<double>> weights() const {
    std::map<std::string, std::vector<double>> all;
    for (const Parameter& p : parameters_of(const_cast<Run*>(this)->trainer)) {
      const auto bits = bits_of(p.weight);
      auto& values = all[p.name];
      values.resize(bits.size() / sizeof(T));
      std::vector<T> stored(values.size());
      std::memcpy(stored.data(), bits.data(), bits.size());
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<double>(static_cast<compute_t<T>>(stored[i]));
    }
    return all;
  }
};

/// Losses, norms, evaluations and weights of ranks are those of one to 1e-12.
inline void check_close_to(const Run<double>& alone, Run<double>& together, const std::string& what) {
  for (std::size_t i = 0; i < steps; ++i) {
    const StepReport &x = together.reports[i], &y = alone.reports[i];
    BOOST_TEST(std::abs(x.loss - y.loss) <= 1e-12 * y.loss,
               what << ", step " << i << ": loss " << x.loss << ", " << y.loss);
    BOOST_TEST(std::abs(x.gradient_norm - y.gradient_norm) <= 1e-12 * y.gradient_norm,
               what << ", step " << i << ": norm " << x.gradient_norm << ", " << y.gradient_norm);
    BOOST_TEST(x.tokens == y.tokens, what);
    BOOST_TEST(std::abs(together.evaluations[i] - alone.evaluations[i]) <= 1e-12 * alone.evaluations[i], what);
  }
  const auto whole = alone.weights(), parts = together.weights();
  for (const Parameter& p : parameters_of(together.trainer)) {
    // The extents of the whole array do not matter but for the length of its rows, which the slice knows.
    HostTensor<double> values({static_cast<std::int64_t>(whole.at(p.name).size())});
    values.values() = whole.at(p.name);
    const HostTensor<double> expected = part_of_array(values, p);
    const auto& got = parts.at(p.name);
    BOOST_REQUIRE(got.size() == expected.values().size());
    double worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i)
      worst = std::max(worst, std::abs(got[i] - expected.values()[i]));
    BOOST_TEST(worst <= 1e-12, what << ", " << p.name << ": " << worst);
  }
}

/// The same number on every rank, to the bit.
class EqualOnAllRanks {
 public:
  explicit EqualOnAllRanks(const std::shared_ptr<Communicator>& ranks) : m_all(ranks, {}, *m_ledger) {}
  void check(double own, const std::string& what) {
    for (const double value : m_all.gather_values(Exec(), std::span(&own, 1))) BOOST_TEST(value == own, what);
  }

 private:
  std::shared_ptr<Ledger> m_ledger = Ledger::create();
  Collectives<Exec> m_all;
};

}  // namespace kformer::Testing
