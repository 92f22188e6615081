// SPDX-License-Identifier: MIT
#include "kformer/train/data_parallel.hpp"

#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "kformer/parallel/tree_order.hpp"
#include "ops/adamw/batches.hpp"
#include "parallel/ranks.hpp"
#include "support/errors.hpp"
#include "train/training_run.hpp"

namespace kformer::Testing {
namespace {

using Bits = std::map<std::string, std::vector<unsigned char>>;

constexpr std::int64_t seq_len = TrainingRun<float>::seq_len;
constexpr std::int64_t batch = 2, steps = 4;
constexpr ZeroStage stages[] = {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients};

// One array has many pieces of a shard.
LlamaConfig model() {
  LlamaConfig config = small_model();
  config.vocab_size = 5 * Impl::adamw_piece / config.hidden_size + 3;
  return config;
}

struct Outcome {
  std::vector<StepReport> reports;
  Bits weights;
};

// Sequences of a step, with a micro-batch at the end that is not full. Of more than `seq_len` tokens they have few targets.
std::vector<TokenSequence> sequences_of(std::int64_t step, std::int64_t micro_batches, std::int64_t longest) {
  auto all = random_sequences(micro_batches * batch - 1, longest, 100 + static_cast<unsigned>(step));
  for (std::size_t i = 0; longest > seq_len && i < all.size(); ++i)
    std::ranges::fill(std::span(all[i].targets).subspan(4 + 7 * (i % 5)), -100);
  return all;
}

template <class T>
Bits weights_of(TrainingRun<T>& run) {
  Bits all;
  for (const Parameter& p : run.trainer.model().trained()) all[p.name] = bits_of(p.weight);
  return all;
}

template <class T>
Outcome train(const TrainerOptions& options, std::int64_t micro_batches) {
  TrainingRun<T> run = run_of<T>(options, model());
  const auto& ranks = options.parallel.ranks;
  const LeafShares shares{micro_batches, ranks ? ranks->size() : 1,
                          options.parallel.zero == ZeroStage::gradients};
  const int rank = ranks ? ranks->rank() : 0;
  Outcome outcome;
  for (std::int64_t step = 0; step < steps; ++step) {
    const auto all = sequences_of(step, micro_batches, options.shape.seq_len);
    const auto at = [&](std::int64_t leaf) {
      return all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), leaf * batch);
    };
    std::vector<TokenSequence> own;
    for (std::int64_t k = 0; k < shares.count(rank); ++k) {
      const std::int64_t leaf = shares.leaf(rank, k);
      own.insert(own.end(), at(leaf), at(leaf + 1));
    }
    outcome.reports.push_back(run.step(own));
  }
  outcome.weights = weights_of(run);
  return outcome;
}

template <class T>
Shards shards_of(const LlamaModel<Exec, T>& model, int ranks) {
  std::vector<std::int64_t> sizes;
  std::vector<std::size_t> ends;
  for (const Parameter& p : model.trained()) sizes.push_back(p.weight.size());
  for (const ParameterGroup& group : model.gradient_groups()) ends.insert(ends.begin(), group.end);
  return Shards(sizes, Impl::adamw_piece, ranks, ends);
}

template <class T>
std::vector<TrainerOptions> kinds_of_training() {
  std::vector<TrainerOptions> all = resumable_options<T>();
  for (const Recompute kind : {Recompute::pointwise, Recompute::layer}) {
    all.push_back(some_trainer_options(batch));
    all.back().layer.recompute = kind;
  }
  all.push_back(some_trainer_options(batch));
  LoraConfig& lora = all.back().layer.lora;
  for (auto& target : lora.targets) target = {.rank = 3, .alpha = 6};
  lora.dropout = 0.25;
  all.back().dropout_seed = 7;
  all.emplace_back(some_trainer_options(batch)).shape.seq_len = 40;
  return all;
}

void check_same(const Outcome& a, const Outcome& b, const std::string& what) {
  BOOST_REQUIRE(a.reports.size() == b.reports.size());
  for (std::size_t i = 0; i < a.reports.size(); ++i) {
    const StepReport &x = a.reports[i], &y = b.reports[i];
    BOOST_TEST(x.loss == y.loss, what << ", loss of step " << i << ": " << x.loss << ", " << y.loss);
    BOOST_TEST(x.gradient_norm == y.gradient_norm, what << ", norm of step " << i);
    BOOST_TEST(x.tokens == y.tokens, what);
    BOOST_TEST((x.computed == y.computed), what);
    BOOST_TEST(x.loss_scale == y.loss_scale, what);
    BOOST_TEST(x.skipped == y.skipped, what);
  }
  for (const auto& [name, bits] : a.weights) BOOST_TEST((bits == b.weights.at(name)), what << ", " << name);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(data_parallel)

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_have_the_bits_of_one_in_the_fixed_order, T, Scalars) {
  const auto ranks = world();
  for (TrainerOptions options : kinds_of_training<T>()) {
    const std::int64_t each = options.layer.lora.any() ? 2 : 1;  // micro-batches of each rank
    const std::int64_t micro_batches = ranks->size() * each;
    options.parallel = {.fixed_order = true, .micro_batches = micro_batches};
    const Outcome alone = train<T>(options, micro_batches);
    BOOST_TEST(!alone.reports.back().skipped);
    for (const ZeroStage zero : stages) {
      // Ranks that are no power of two have one micro-batch each.
      if (zero == ZeroStage::gradients && !LeafShares{micro_batches, ranks->size(), true}.keep_order())
        continue;
      for (const bool overlap : {false, true}) {
        options.parallel = {.ranks = ranks,
                            .zero = zero,
                            .fixed_order = true,
                            .micro_batches = each,
                            .collectives = {.chunk_bytes = 30000},
                            .overlap = overlap,
                            .bucket_bytes = 30000};
        check_same(train<T>(options, micro_batches), alone,
                   std::string(name_of(zero)) + ", " + std::to_string(each) + " micro-batches, overlap " +
                       std::to_string(overlap));
      }
    }
  }
}

// In any order, on numbers of ranks that divide nothing: some have no sequences.
BOOST_AUTO_TEST_CASE(ranks_compute_what_one_does) {
  const auto ranks = world();
  for (const std::int64_t micro_batches : {1, 3, 5}) {
    TrainerOptions options = some_trainer_options(batch);
    const Outcome alone = train<double>(options, micro_batches);
    for (const int kind : {0, 1, 2, 3, 4, 5}) {
      options.parallel = {.ranks = ranks, .zero = stages[kind / 2], .overlap = kind % 2 == 1};
      const Outcome together = train<double>(options, micro_batches);
      for (std::size_t i = 0; i < steps; ++i) {
        const StepReport &x = together.reports[i], &y = alone.reports[i];
        BOOST_TEST(std::abs(x.loss - y.loss) <= 1e-12 * y.loss, micro_batches << " micro-batches");
        BOOST_TEST(std::abs(x.gradient_norm - y.gradient_norm) <= 1e-12 * y.gradient_norm);
        BOOST_TEST(x.tokens == y.tokens);
      }
      for (const auto& [name, bits] : alone.weights) {
        std::vector<double> a(bits.size() / sizeof(double)), b(a.size());
        std::memcpy(a.data(), bits.data(), bits.size());
        std::memcpy(b.data(), together.weights.at(name).data(), bits.size());
        for (std::size_t i = 0; i < a.size(); ++i)
          BOOST_REQUIRE_MESSAGE(std::abs(a[i] - b[i]) <= 1e-12,
                                name << " [" << i << "] " << a[i] << " " << b[i]);
      }
    }
  }
}

// Objectives count sequences through the whole step, and their losses are summed in the tree over all micro-batches: any
// other order has another sum.
BOOST_AUTO_TEST_CASE(objectives_know_the_sequences_of_the_step) {
  const auto ranks = world();
  const std::int64_t micro_batches = 2 * ranks->size();
  const auto loss_of = [](std::int64_t i) {
    return std::array{1e16, 1., -1e16, 1.}[static_cast<std::size_t>(i % 4)];
  };
  const auto all = random_sequences(micro_batches * batch, seq_len);
  const auto step = [&](const DataParallelOptions& parallel) {
    TrainerOptions options = some_trainer_options(batch);
    options.parallel = parallel;
    TrainingRun<double> run(options, model());
    const LeafShares shares{micro_batches, parallel.ranks ? parallel.ranks->size() : 1,
                            parallel.zero == ZeroStage::gradients};
    const int rank = parallel.ranks ? parallel.ranks->rank() : 0;
    std::vector<TokenSequence> own;
    for (std::int64_t k = 0; k < shares.count(rank); ++k) {
      const auto first = all.begin() + shares.leaf(rank, k) * batch;
      own.insert(own.end(), first, first + batch);
    }
    const StepReport report =
        run.trainer.step(Exec(), own, [&](std::size_t first, const LogProbabilities& logp) {
          ObjectiveShare share;
          share.loss = loss_of(static_cast<std::int64_t>(first) / batch);
          for (std::size_t s = 0; s < logp.sequences(); ++s)
            for (std::size_t i = 0; i < logp.of(s).size(); ++i)
              share.dlogp.push_back(-1 - static_cast<double>(first + s));
          return share;
        });
    return Outcome{{report}, weights_of(run)};
  };
  const Outcome alone = step({.fixed_order = true, .micro_batches = micro_batches});
  BOOST_TEST(alone.reports[0].loss == tree_sum<double>(micro_batches, loss_of));
  for (const ZeroStage zero : stages) {
    if (!LeafShares{micro_batches, ranks->size(), zero == ZeroStage::gradients}.keep_order()) continue;
    check_same(step({.ranks = ranks, .zero = zero, .fixed_order = true, .micro_batches = 2}), alone,
               "objective, " + std::string(name_of(zero)));
  }
}

// A rank that overwrites its gradients has those of an earlier step, or of nothing.
BOOST_AUTO_TEST_CASE(ranks_without_sequences_add_nothing) {
  const auto ranks = world();
  const auto all = random_sequences(ranks->size() * batch, seq_len);
  const auto train_some = [&](std::shared_ptr<Communicator> communicator) {
    TrainerOptions options = some_trainer_options(batch);
    options.layer.accumulate = communicator == nullptr;
    options.parallel.ranks = communicator;
    TrainingRun<double> run(options, model());
    const auto rank = communicator ? communicator->rank() : 0;
    const auto part = [&](std::ptrdiff_t first, std::ptrdiff_t count) {
      return std::vector<TokenSequence>(all.begin() + first, all.begin() + first + count);
    };
    Outcome outcome;
    outcome.reports.push_back(run.step(communicator ? part(rank * batch, batch) : all));
    outcome.reports.push_back(run.step(rank == 0 ? part(0, batch) : part(0, 0)));
    return outcome;
  };
  const Outcome alone = train_some(nullptr), together = train_some(ranks);
  for (std::size_t i = 0; i < 2; ++i) {
    const StepReport &x = together.reports[i], &y = alone.reports[i];
    BOOST_TEST(std::abs(x.loss - y.loss) <= 1e-12 * y.loss);
    BOOST_TEST(std::abs(x.gradient_norm - y.gradient_norm) <= 1e-12 * y.gradient_norm);
  }
}

// To the byte, and the parts of the optimizer together are the whole.
BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  for (const ZeroStage zero : stages) {
    TrainerOptions options = some_trainer_options(batch);
    options.parallel = {.ranks = ranks,
                        .zero = zero,
                        .fixed_order = true,
                        .micro_batches = 4,
                        .overlap = ranks->size() % 2 == 0};
    const TrainingRun<bf16> run(options, model());
    options.parallel.ranks = std::make_shared<LoneCommunicator>(ranks->rank(), ranks->size());
    const auto forecast = Ledger::create(Ledger::Mode::count);
    const Trainer<Exec, bf16> counted(model(), options, *forecast);
    for (int c = 0; c < memory_classes; ++c) {
      const auto memory_class = static_cast<MemoryClass>(c);
      BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class), to_string(memory_class));
    }
    std::array states{0.0};
    for (const AdamWParameter& p : run.trainer.optimizer().parameters())
      states[0] += static_cast<double>(p.m.size());
    const auto ledger = Ledger::create();
    const auto all = Collectives<Exec>(ranks, {}, *ledger).gather_values(Exec(), states);
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    const auto whole = static_cast<double>(model().model_parameter_count());
    BOOST_TEST(sum == (zero == ZeroStage::none ? ranks->size() * whole : whole));
  }
}

// The embedding, whose array the head has too, the norm, one layer, and the shard; each array starts at 64 bytes.
BOOST_AUTO_TEST_CASE(ranks_that_divide_gradients_keep_those_of_a_layer_and_their_shard) {
  const auto ranks = world();
  const auto fits = [&](TrainerOptions options) {
    options.parallel = {.ranks = ranks, .zero = ZeroStage::gradients};
    TrainingRun<bf16> run(options, model());
    std::int64_t elements = 0, arrays = 0;
    for (const Parameter& p : run.trainer.model().trained()) {
      const bool other_layer = p.name.starts_with("model.layers.") && !p.name.starts_with("model.layers.0.");
      if (other_layer || p.name == "lm_head.weight") continue;
      elements += p.weight.size();
      ++arrays;
    }
    for (const AdamWParameter& p : run.trainer.optimizer().parameters()) {
      elements += p.m.size();
      ++arrays;
    }
    const auto bytes = static_cast<std::int64_t>(run.ledger->peak(MemoryClass::gradients));
    BOOST_TEST(bytes >= 4 * elements);
    BOOST_TEST(bytes <= 4 * elements + 64 * arrays);
  };
  TrainerOptions options = some_trainer_options(batch);
  fits(options);
  options.layer.recompute = Recompute::layer;
  fits(options);
  for (auto& target : options.layer.lora.targets) target = {.rank = 3, .alpha = 6};
  fits(options);
}

BOOST_AUTO_TEST_CASE(gradients_are_sent_once_or_for_each_micro_batch) {
  for (const ZeroStage zero : stages) {
    const auto ranks = world();
    const std::int64_t n = ranks->size(), each = 3;
    TrainerOptions options = some_trainer_options(batch);
    options.parallel = {.ranks = ranks, .zero = zero, .overlap = ranks->size() % 2 == 0};
    TrainingRun<bf16> run(options, model());
    const StepReport report = run.step(random_sequences(each * batch, seq_len));
    BOOST_TEST(!report.skipped);
    std::map<std::string, std::int64_t> sent;
    for (const auto& entry : ranks->log().counts())
      sent[entry.region] += static_cast<std::int64_t>(entry.bytes);
    const std::int64_t own = shards_of(run.trainer.model(), ranks->size()).elements(ranks->rank());
    const std::int64_t all = model().model_parameter_count(), reduced = 4 * (all - own);
    BOOST_TEST(sent["gradients"] == (zero == ZeroStage::none        ? reduced + 4 * (n - 1) * own
                                     : zero == ZeroStage::optimizer ? reduced
                                                                    : each * reduced));
    BOOST_TEST(sent["weights"] == (zero == ZeroStage::none ? 0 : 2 * (n - 1) * own));
  }
}

BOOST_AUTO_TEST_CASE(shards_have_every_element_once) {
  const std::vector<std::int64_t> sizes{0, 10, 3, 25, 1};
  const std::vector<std::vector<std::size_t>> ends{{}, {5}, {1, 2, 3, 5}, {2, 2, 5}, {1, 2, 3, 4, 5}};
  for (const auto& groups : ends)
    for (const int count : {1, 2, 3, 7, 30}) {
      const Shards shards(sizes, 4, count, groups);
      std::vector<std::vector<int>> seen;
      for (const std::int64_t size : sizes) seen.emplace_back(static_cast<std::size_t>(size));
      std::int64_t elements = 0;
      for (int r = 0; r < count; ++r) {
        elements += shards.elements(r);
        for (const ArrayRange& range : shards.of(r)) {
          BOOST_TEST((range.size() == 0 || range.begin % 4 == 0));
          for (std::int64_t i = range.begin; i < range.end; ++i)
            ++seen[range.array][static_cast<std::size_t>(i)];
        }
        const std::int64_t pieces = shards.pieces_end(r) - (r > 0 ? shards.pieces_end(r - 1) : 0);
        BOOST_TEST(std::abs(static_cast<double>(pieces) - 12.0 / count) < 1);
      }
      BOOST_TEST(elements == 39);
      // Each rank has a part of each group, and the pieces keep the order of the arrays.
      std::vector<std::int64_t> places = shards.places();
      for (std::size_t first = 0; const std::size_t end : groups) {
        std::int64_t most = 0, least = 39;
        for (int r = 0; r < count; ++r) {
          std::int64_t pieces = 0;
          for (std::size_t a = first; a < end; ++a) pieces += (shards.of(r)[a].size() + 3) / 4;
          most = std::max(most, pieces);
          least = std::min(least, pieces);
        }
        BOOST_TEST(most - least <= 1);
        first = end;
      }
      std::int64_t at = 0;
      std::vector<std::int64_t> piece_of_array(sizes.size());
      for (std::size_t a = 1; a < sizes.size(); ++a)
        piece_of_array[a] = piece_of_array[a - 1] + (sizes[a - 1] + 3) / 4;
      for (int r = 0; r < count; ++r)
        for (const ArrayRange& range : shards.of(r))
          for (std::int64_t i = range.begin; i < range.end; i += 4)
            BOOST_TEST(places[static_cast<std::size_t>(piece_of_array[range.array] + i / 4)] == at++);
      std::ranges::sort(places);
      for (std::int64_t i = 0; i < 12; ++i) BOOST_TEST(places[static_cast<std::size_t>(i)] == i);
      for (const auto& array : seen)
        for (const int times : array) BOOST_TEST(times == 1);
    }
}

BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formulae) {
  const auto ranks = world();
  const auto ledger = Ledger::create();
  Collectives<Exec> collectives(ranks, {.chunk_bytes = 256}, *ledger);
  const std::size_t n = static_cast<std::size_t>(ranks->size());
  const Vector<float> x("x", 1000);
  const Vector<bf16> y("y", 77);
  const std::vector<TensorRef> arrays{tensor_ref(x), tensor_ref(y)};
  const Shards shards(std::vector<std::int64_t>{1000, 77}, 16, ranks->size());
  std::size_t own = 0;
  for (const ArrayRange& range : shards.of(ranks->rank()))
    own += static_cast<std::size_t>(range.size()) * size_of(arrays[range.array].dtype);
  collectives.reduce_shards(Exec(), arrays, shards, "reduced");
  collectives.gather_shards(Exec(), arrays, shards, "gathered");
  std::map<std::string, std::uint64_t> bytes;
  for (const auto& entry : ranks->log().counts()) bytes[entry.region] = entry.bytes;
  BOOST_TEST(bytes["reduced"] == 4 * 1000 + 2 * 77 - own);
  BOOST_TEST(bytes["gathered"] == (n - 1) * own);
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ranks = world();
  const int rank = ranks->rank();
  const auto sequences = random_sequences(6, seq_len);
  const auto step = [&](bool fixed_order, std::int64_t count, ZeroStage zero = ZeroStage::none) {
    TrainerOptions options = some_trainer_options(batch);
    options.parallel = {.ranks = ranks, .zero = zero, .fixed_order = fixed_order, .micro_batches = 4};
    TrainingRun<float> run(options);
    return run.step({sequences.begin(), sequences.begin() + count});
  };
  if (ranks->size() > 1) {
    check_error<NotSupported>([&] { step(false, 1); },
                              "kformer::DataParallel: a rank before rank 1 has no multiple of the micro-batch, "
                              "which is 2 sequences; only the last rank that has sequences may have other "
                              "numbers (LeafShares)");
    const std::string size = std::to_string(ranks->size()), leaves = std::to_string(3 * ranks->size());
    check_error<NotSupported>([&] { step(true, 6); },
                              "kformer::DataParallel: with fixed_order each of " + size +
                                  " ranks takes as many micro-batches, a power of two, of which the last may "
                                  "lack some but not all; " +
                                  leaves + " micro-batches are not divided so");
    check_error<NotSupported>(
        [&] { step(false, 1, ZeroStage::gradients); },
        "kformer::DataParallel: rank 0 has 1 sequences; with ZeroStage::gradients the " + size +
            " micro-batches of 2 are dealt in turns (LeafShares), and only the last may have "
            "fewer");
    check_error<NotSupported>(
        [&] { step(false, rank == 0 ? 2 : 4, ZeroStage::gradients); },
        "kformer::DataParallel: rank 0 has 2 sequences; with ZeroStage::gradients the " +
            std::to_string(2 * ranks->size() - 1) +
            " micro-batches of 2 are dealt in turns (LeafShares), and only the last may have "
            "fewer");
    if (ranks->size() == 3)
      check_error<NotSupported>(
          [&] { step(true, 4, ZeroStage::gradients); },
          "kformer::DataParallel: with fixed_order each of 3 ranks takes as many micro-batches, and with "
          "ZeroStage::gradients the ranks are a power of two, unless each has one; 6 micro-batches are not "
          "divided so");
  }
  check_error<NotSupported>(
      [&] { Shards(std::vector<std::int64_t>{1, 2}, 4, 1, std::vector<std::size_t>{1}); },
      "kformer::Shards: expected groups that end in order, the last one with the last of 2 "
      "arrays");
  check_error<NotSupported>(
      [&] { Shards({}, 0, 1); },
      "kformer::Shards: expected at least one rank and one element in a piece, got 1 and 0");
  const auto ledger = Ledger::create();
  Collectives<Exec> collectives(ranks, {}, *ledger);
  check_error<NotSupported>([&] { collectives.reduce_shards(Exec(), {}, Shards({}, 1, ranks->size() + 1)); },
                            "kformer::Collectives::reduce_shards: the shards are for " +
                                std::to_string(ranks->size() + 1) + " ranks, and 'world' has " +
                                std::to_string(ranks->size()));
  const Kokkos::View<std::uint8_t*, Exec::memory_space> codes("codes", 1);
  const std::vector<TensorRef> arrays{tensor_ref(codes)};
  check_error<NotSupported>(
      [&] {
        collectives.reduce_shards(Exec(), arrays, Shards(std::vector<std::int64_t>{1}, 1, ranks->size()));
      },
      "kformer::Collectives::reduce_shards: an array is of u8; expected float, double, bf16 or f16");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
