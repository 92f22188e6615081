// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "model/tensor/vocabulary_ranks.hpp"
#include "parallel/tensor_runs.hpp"

// Losses of words that ranks divide are those of whole ones.
namespace kformer::Testing {
namespace {

// The loss of some states whose words ranks divide, or not, and its gradients.
struct WordLoss {
  static constexpr std::size_t rows = 11, hidden = 5;
  Impl::VocabularySlice words;
  std::vector<double> loss, dx, dweight;

  WordLoss(std::int64_t vocabulary, const std::shared_ptr<Communicator>& ranks,
           const LinearCrossEntropyOptions& options, bool gradients)
      : words(vocabulary, ranks) {
    const auto ledger = Ledger::create();
    std::optional<Collectives<Exec>> collectives;
    if (ranks && ranks->size() > 1) collectives.emplace(ranks, CollectivesOptions{}, *ledger);
    Impl::VocabularyRanks<Exec, double> of_ranks(vocabulary, rows, collectives ? &*collectives : nullptr, 0,
                                                 *ledger);
    const auto own = static_cast<std::size_t>(words.size());
    std::vector<double> x = numbers(rows * hidden, 1),
                        weight = own_rows(numbers(static_cast<std::size_t>(vocabulary) * hidden, 2));
    std::vector<std::int32_t> targets;
    for (std::size_t i = 0; i < rows; ++i)
      targets.push_back(static_cast<std::int32_t>(3 + 7 * i % static_cast<std::size_t>(vocabulary - 3)));
    targets[2] = 1;                                                      // ignored
    if (!gradients) targets[4] = static_cast<std::int32_t>(vocabulary);  // no word
    // Row 6 gives the last word a logit of −∞, row 8 all of the last rank, which has its target.
    targets[8] = static_cast<std::int32_t>(vocabulary) - 2;
    const int size = world()->size();
    for (std::size_t i = 0; i < rows; ++i) {
      x[i * hidden] = i == 6 ? 1e200 : 0;
      x[i * hidden + 1] = i == 8 ? 1e200 : 0;
    }
    for (std::size_t v = 0; v < own; ++v) {
      const std::int64_t word = words.begin + static_cast<std::int64_t>(v);
      weight[v * hidden] = word + 1 == vocabulary ? -1e200 : 0;
      weight[v * hidden + 1] = word >= slice_begin(vocabulary, size - 1, size) ? -1e200 : 0;
    }
    const auto matrix = [](const Vector<double>& values, std::size_t count) {
      return BlockMatrix<Exec::memory_space, double>(values.data(),
                                                     Kokkos::LayoutStride(count, hidden, hidden, 1));
    };
    const auto x_there = on_device(x), weight_there = on_device(weight), dloss = on_device(numbers(rows, 3));
    const auto targets_there = on_device(targets);
    const Vector<double> loss_there("loss", rows), dx_there("dx", rows * hidden),
        dweight_there("dw", own * hidden);
    const Kokkos::View<std::byte*, Exec::memory_space> workspace(
        "workspace", linear_cross_entropy_workspace_bytes<double>(Exec(), rows, words.size(), options));
    of_ranks.loss(
        Exec(),
        {.x = matrix(x_there, rows),
         .weight = matrix(weight_there, own),
         .targets = targets_there,
         .dloss = dloss,
         .loss = loss_there,
         .dx = gradients ? matrix(dx_there, rows) : BlockMatrix<Exec::memory_space, double>(),
         .dweight = gradients ? matrix(dweight_there, own) : BlockMatrix<Exec::memory_space, double>()},
        options, workspace);
    loss = on_host(loss_there);
    dx = on_host(dx_there);
    dweight = on_host(dweight_there);
  }

  static std::vector<double> numbers(std::size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    std::vector<double> values(count);
    for (double& v : values) v = normal(generator);
    return values;
  }

  // Of a matrix with a row for each word.
  std::vector<double> own_rows(const std::vector<double>& whole) const {
    const auto at = [&](std::int64_t word) { return whole.begin() + word * static_cast<std::int64_t>(hidden); };
    return {at(words.begin), at(words.end)};
  }
};

// Infinite and undefined numbers in the same places, and others to 1e-12.
void check_same(const std::vector<double>& found, const std::vector<double>& expected) {
  BOOST_REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double x = found[i], y = expected[i];
    const bool same = std::isfinite(y) ? std::abs(x - y) <= 1e-12 * std::max(1.0, std::abs(y))
                                       : x == y || (std::isnan(x) && std::isnan(y));
    BOOST_TEST(same, i << ": " << x << ", expected " << y);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_losses)

// Each word has a share of every loss.
BOOST_AUTO_TEST_CASE(smoothed_losses_are_those_of_one_rank) {
  const auto ranks = world();
  for (const Kind& kind : {kinds[0], kinds[1]})
    for (const CrossEntropyOptions& loss : {CrossEntropyOptions{.label_smoothing = 0.1},
                                            {.label_smoothing = 0.3, .z_loss = 1e-3, .softcap = 1.5}})
      for (const bool sequence_parallel : {false, true}) {
        const LlamaConfig config = model(kind, ranks->size());
        TrainerOptions options = options_of(kind);
        options.shape.seq_len = 12;
        options.loss = loss;
        const Run<double> alone(options, config, 0, 5);
        options.layer.tensor = ranks;
        options.layer.sequence_parallel = sequence_parallel;
        Run<double> together(options, config, 0, 5);
        check_close_to(alone, together, std::string(kind.name) + ", smoothed");
      }
}

// In one call or several; with targets that are ignored, those that are no words, and words that are impossible.
BOOST_AUTO_TEST_CASE(losses_of_divided_words_are_those_of_whole_ones) {
  const auto ranks = world();
  const std::int64_t words = 8 * ranks->size() + 3;
  for (const double smoothing : {0.0, 0.2})
    for (const std::int64_t chunk : {0, 4})
      for (const bool gradients : {false, true}) {
        LinearCrossEntropyOptions options{.cross_entropy = {.ignore_index = 1, .label_smoothing = smoothing},
                                          .chunk_rows = chunk};
        const WordLoss whole(words, nullptr, options, gradients), parts(words, ranks, options, gradients);
        check_same(parts.loss, whole.loss);
        if (!gradients) continue;
        check_same(parts.dx, whole.dx);
        check_same(parts.dweight, parts.own_rows(whole.dweight));
      }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
