// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <utility>

#include "model/decoding.hpp"
#include "parallel/ranks.hpp"
#include "support/distance.hpp"
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

/// The same, and what each of these ranks has are whole blocks of 8-bit states.
inline LlamaConfig block_model(const Kind& kind, int ranks) {
  LlamaConfig config = model(kind, ranks);
  config.hidden_size = 32;
  config.head_dim = 64;
  config.num_attention_heads = config.num_key_value_heads = 4 * ranks;
  config.intermediate_size = 256 * ranks;
  const std::int64_t words = 8 * ranks;
  config.vocab_size = (config.vocab_size + words - 1) / words * words;
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

/// A rank's part of random numbers that depend on the name of an array alone. Matrices are small, so that steps magnify no
/// rounding; magnitudes are near those of the rows of weights.
inline HostTensor<double> random_adapter(const Parameter& p) {
  std::mt19937 generator(static_cast<unsigned>(std::hash<std::string>()(p.name)));
  std::normal_distribution<double> normal;
  std::int64_t extents[] = {p.weight.extent[0], p.weight.rank > 1 ? p.weight.extent[1] : 1};
  if (p.slice.divides()) extents[p.slice.axis] = p.slice.whole;
  auto whole =
      p.weight.rank == 1 ? HostTensor<double>({extents[0]}) : HostTensor<double>({extents[0], extents[1]});
  for (double& v : whole.values()) v = (p.weight.rank == 1 ? 1 : 0) + 0.1 * normal(generator);
  return part_of_array(whole, p);
}

/// Changes the random sequences of a step.
using EditSequences = std::function<void(std::vector<TokenSequence>&)>;

/// The numbers of an array.
template <class T>
std::vector<double> values_of(const TensorRef& array) {
  const auto bits = bits_of(array);
  std::vector<T> stored(bits.size() / sizeof(T));
  std::memcpy(stored.data(), bits.data(), bits.size());
  std::vector<double> values;
  for (const T value : stored) values.push_back(static_cast<double>(static_cast<compute_t<T>>(value)));
  return values;
}

/// The part of a whole array that a rank has.
inline std::vector<double> part_of_values(const std::vector<double>& whole, const Parameter& p) {
  // The extents of the whole array do not matter but for the length of its rows, which the slice knows.
  HostTensor<double> values({static_cast<std::int64_t>(whole.size())});
  values.values() = whole;
  return part_of_array(values, p).values();
}

/// Where element i of a part as checkpoints have it is in the whole array.
inline std::int64_t place_in_whole(const NamedArray& a, std::int64_t i) {
  const auto& [first, last, width] = a.columns;
  i += a.begin.value_or(0);
  return width > 0 ? i / (last - first) * width + first + i % (last - first) : i;
}

/// The bits of such a part.
inline std::vector<unsigned char> bits_of_part(const std::vector<unsigned char>& whole, const NamedArray& a) {
  const auto element = static_cast<std::int64_t>(size_of(a.array.dtype));
  std::vector<unsigned char> part;
  for (std::int64_t i = 0; i < a.array.size(); ++i) {
    const auto at = whole.begin() + place_in_whole(a, i) * element;
    part.insert(part.end(), at, at + element);
  }
  return part;
}

/// Parameters and their numbers.
using Numbers = std::vector<std::pair<Parameter, std::vector<double>>>;

/// Adds those of some parameters.
inline void add_numbers(const std::vector<Parameter>& parameters, Numbers& all) {
  for (const Parameter& p : parameters) all.emplace_back(p, values_of<double>(p.weight));
}

/// What a rank has are its parts of what one rank has.
inline void check_parts(const Numbers& own, const Numbers& alone) {
  BOOST_REQUIRE(own.size() == alone.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double worst = distance(own[i].second, part_of_values(alone[i].second, own[i].first));
    BOOST_TEST(worst <= 1e-12, own[i].first.name << ": " << worst);
  }
}

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
    for (auto& part : trainer.parts())
      for (const WeightSlot& slot : part.weights())
        if (slot.is_quantized())
          Decoding<T>::write(slot,
                             part_of_array(inputs.weights.at(slot.name), Decoding<T>::parameter_of(slot)));
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
    for (const Parameter& p : parameters_of(const_cast<Run*>(this)->trainer))
      all[p.name] = values_of<T>(p.weight);
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
    const double worst = distance(parts.at(p.name), part_of_values(whole.at(p.name), p));
    BOOST_TEST(worst <= 1e-12, what << ", " << p.name << ": " << worst);
  }
}

/// The same numbers on every rank, to the bit.
class EqualOnAllRanks {
 public:
  explicit EqualOnAllRanks(const std::shared_ptr<Communicator>& ranks) : m_all(ranks, {}, *m_ledger) {}
  void check(std::span<const double> own, const std::string& what) {
    const std::vector<double> all = m_all.gather_values(Exec(), own);
    for (std::size_t i = 0; i < all.size(); ++i)
      BOOST_REQUIRE_MESSAGE(all[i] == own[i % own.size()], what << ", number " << i);
  }
  void check(double own, const std::string& what) { check(std::span(&own, 1), what); }

 private:
  std::shared_ptr<Ledger> m_ledger = Ledger::create();
  Collectives<Exec> m_all;
};

}  // namespace kformer::Testing
