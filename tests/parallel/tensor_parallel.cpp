// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>

#include "kformer/model/llama_decoder.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "parallel/tensor_runs.hpp"
#include "support/errors.hpp"

// Ranks that divide a model compute what one does.
namespace kformer::Testing {
BOOST_AUTO_TEST_SUITE(tensor_parallel)

BOOST_AUTO_TEST_CASE(ranks_that_divide_a_model_compute_what_one_does) {
  const auto ranks = world();
  for (const Kind& kind : kinds)
    for (const bool sequence_parallel : {false, true}) {
      const LlamaConfig config = model(kind, ranks->size());
      TrainerOptions options = options_of(kind);
      options.shape.seq_len = 12;  // with two sequences, tokens for 8 ranks
      const Run<double> alone(options, config, 0, 5);
      options.layer.tensor = ranks;
      options.layer.sequence_parallel = sequence_parallel;
      Run<double> together(options, config, 0, 5);
      check_close_to(alone, together,
                     std::string(kind.name) + (sequence_parallel ? ", and the tokens of states" : ""));
    }
}

// Each model is divided among some ranks, and its sequences among others.
BOOST_AUTO_TEST_CASE(grids_compute_what_one_rank_does) {
  const auto ranks = world();
  for (int tensor = 2; tensor < ranks->size(); ++tensor) {
    if (ranks->size() % tensor != 0) continue;
    const int data = ranks->size() / tensor;
    const RankGrid grid(ranks, {.data = data, .tensor = tensor});
    for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
      const LlamaConfig config = model(kinds[2], tensor);
      TrainerOptions options = options_of(kinds[2]);
      const Run<double> alone(options, config, 0, 2 * data);
      options.layer.tensor = grid.along(GridAxis::tensor);
      options.layer.sequence_parallel = zero != ZeroStage::optimizer;
      options.parallel = {.ranks = grid.along(GridAxis::data), .zero = zero, .overlap = data % 2 == 0};
      Run<double> together(options, config, 2 * grid.place().data, 2);
      check_close_to(alone, together,
                     std::to_string(data) + " x " + std::to_string(tensor) + ", " + std::string(name_of(zero)));
    }
  }
}

// Weights that every rank has stay the same on all, and so do losses.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  TrainerOptions options = options_of(kinds[2]);
  options.shape.seq_len = 12;
  options.layer.tensor = ranks;
  options.layer.sequence_parallel = true;
  Run<T> run(options, model(kinds[2], ranks->size()), 0, 3);
  for (const StepReport& report : run.reports) {
    equal.check(report.loss, "loss");
    equal.check(report.gradient_norm, "norm");
  }
  const auto weights = run.weights();
  for (const Parameter& p : run.trainer.model().parameters())
    if (!p.slice.divides())
      for (const double value : weights.at(p.name)) equal.check(value, p.name);
}

BOOST_AUTO_TEST_CASE(eight_bit_states_are_refused) {
  TrainerOptions options = options_of(kinds[0]);
  options.optimizer.states = OptimizerStates::eight_bit;
  options.layer.tensor = std::make_shared<LoneCommunicator>(1, 3);
  const auto ledger = Ledger::create(Ledger::Mode::count);
  check_error<NotSupported>([&] { Trainer<Exec, float>(model(kinds[0], 3), options, *ledger); },
                            "kformer::Trainer: 8-bit states are of blocks of whole weights, which ranks divide "
                            "(tensor); take states in float");
}

BOOST_AUTO_TEST_CASE(logits_are_those_of_one_rank) {
  const auto ranks = world();
  const LlamaConfig config = model(kinds[1], ranks->size());
  const ModelInputs inputs = ModelInputs::random(config, {1, 1});
  constexpr std::int64_t tokens = 24;
  const auto logits_of = [&](const std::shared_ptr<Communicator>& tensor, bool sequence_parallel) {
    const auto ledger = Ledger::create();
    LlamaModel<Exec, double> m(config, {1, tokens}, {.tensor = tensor, .sequence_parallel = sequence_parallel},
                               *ledger);
    for (const Parameter& p : m.parameters())
      write_parameter<double>(p.weight, part_of_array(inputs.weights.at(p.name), p));
    m.prepare(Exec());
    std::vector<std::int32_t> ids(tokens);
    std::iota(ids.begin(), ids.end(), 0);
    ids.back() = static_cast<std::int32_t>(config.vocab_size) - 1;
    m.forward(Exec(), on_device(ids));
    const Kokkos::View<double**, Kokkos::LayoutRight, Exec::memory_space> logits("logits", tokens,
                                                                                 config.vocab_size);
    m.logits(Exec(), logits);
    const Kokkos::View<double**, Kokkos::LayoutRight, Exec::memory_space> of_one("logits", 1,
                                                                                 config.vocab_size);
    m.logits(Exec(), tokens - 2, of_one);
    auto all = on_host(logits);
    std::ranges::copy(on_host(of_one), std::back_inserter(all));
    return all;
  };
  const auto alone = logits_of(nullptr, false);
  for (const bool sequence_parallel : {false, true}) {
    const auto together = logits_of(ranks, sequence_parallel);
    for (std::size_t i = 0; i < alone.size(); ++i) BOOST_REQUIRE(std::abs(alone[i] - together[i]) <= 1e-12);
  }
}

// To the byte, and the parts of the weights together are the whole.
BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  std::size_t activations = 0;
  for (const bool sequence_parallel : {false, true}) {
    TrainerOptions options = options_of(kinds[0]);
    options.shape.seq_len = 12;
    const LlamaConfig config = model(kinds[0], ranks->size());
    options.layer.tensor = ranks;
    options.layer.sequence_parallel = sequence_parallel;
    const Run<bf16> run(options, config, 0, 2);
    options.layer.tensor = std::make_shared<LoneCommunicator>(ranks->rank(), ranks->size());
    const auto forecast = Ledger::create(Ledger::Mode::count);
    const Trainer<Exec, bf16> counted(config, options, *forecast);
    for (int c = 0; c < memory_classes; ++c) {
      const auto memory_class = static_cast<MemoryClass>(c);
      BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class), to_string(memory_class));
    }
    const std::size_t now = forecast->peak(MemoryClass::activations);
    if (sequence_parallel && ranks->size() > 1) BOOST_TEST(now < activations);
    activations = now;
  }
}

// 4 sums of activations in each layer, one behind the embedding and one behind the head, for each micro-batch of a step.
BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formula) {
  const auto ranks = world();
  if (ranks->size() == 1) return;
  TrainerOptions options = options_of(kinds[0]);
  const LlamaConfig config = model(kinds[0], ranks->size());
  options.layer.tensor = ranks;
  const auto ledger = Ledger::create();
  Trainer<Exec, double> trainer(config, options, *ledger);
  trainer.prepare(Exec());
  (void)trainer.step(Exec(), random_sequences(batch, seq_len));
  std::uint64_t sent = 0;
  for (const auto& entry : ranks->log().counts())
    if (entry.operation == "all_reduce" && entry.region != "gradients") sent += entry.bytes;
  const std::int64_t n = ranks->size(), elements = batch * seq_len * config.hidden_size;
  const std::int64_t each = (elements + n - 1) / n;
  const std::int64_t own = std::min(each, std::max<std::int64_t>(0, elements - ranks->rank() * each));
  const std::int64_t sums = 4 * config.num_hidden_layers + 2;
  BOOST_TEST(sent == static_cast<std::uint64_t>(sums * 8 * (elements - own + (n - 1) * own)));
}

// Where tokens of states are divided: each sum becomes a part of it on each rank, and the parts are gathered, in backward once
// more in each layer for both gradients of weights that read them.
BOOST_AUTO_TEST_CASE(bytes_with_divided_states_are_those_of_the_formula) {
  const auto ranks = world();
  if (ranks->size() == 1) return;
  TrainerOptions options = options_of(kinds[0]);
  options.shape.seq_len = 12;
  const LlamaConfig config = model(kinds[0], ranks->size());
  options.layer.tensor = ranks;
  options.layer.sequence_parallel = true;
  const auto ledger = Ledger::create();
  Trainer<Exec, double> trainer(config, options, *ledger);
  trainer.prepare(Exec());
  (void)trainer.step(Exec(), random_sequences(batch, 12));
  std::map<std::string, std::uint64_t> sent;
  for (const auto& entry : ranks->log().counts()) sent[entry.operation + " " + entry.region] += entry.bytes;
  const std::int64_t n = ranks->size(), elements = batch * 12 * config.hidden_size,
                     layers = config.num_hidden_layers;
  const auto parts = static_cast<std::uint64_t>(elements / n * (n - 1) * std::int64_t(sizeof(double)));
  const auto count = [&](std::int64_t arrays) { return static_cast<std::uint64_t>(arrays) * parts; };
  BOOST_TEST(sent["reduce_scatter activations"] == count(2 * layers));
  BOOST_TEST(sent["reduce_scatter gradients of activations"] == count(2 * layers + 1));
  BOOST_TEST(sent["reduce_scatter embedding"] == count(1));
  BOOST_TEST(sent["all_gather tokens"] == count(2 * layers + 1 + 4 * layers + 1));
}

BOOST_AUTO_TEST_CASE(what_ranks_do_not_divide_is_refused) {
  const auto check_refused = [](const LlamaConfig& config, LayerOptions layer, const std::string& text) {
    layer.tensor = std::make_shared<LoneCommunicator>(1, 3);
    const auto ledger = Ledger::create(Ledger::Mode::count);
    check_error<NotSupported>([&] { LlamaModel<Exec, float>(config, {1, 4}, layer, *ledger); }, text);
    for (int c = 0; c < memory_classes; ++c) BOOST_TEST(ledger->peak(static_cast<MemoryClass>(c)) == 0u);
  };
  const auto not_divided = [](const std::string& extent) {
    return "kformer::LlamaModel: 3 ranks (tensor) do not divide " + extent +
           "; take a number of ranks that does";
  };
  LlamaConfig config = model(kinds[0], 3);
  config.num_attention_heads = config.num_key_value_heads = 4;
  check_refused(config, {}, not_divided("num_attention_heads 4"));
  config = model(kinds[0], 3);
  config.num_key_value_heads = 2;
  check_refused(config, {}, not_divided("num_key_value_heads 2"));
  config = model(kinds[0], 3);
  config.intermediate_size = 16;
  check_refused(config, {}, not_divided("intermediate_size 16"));
  check_refused(model(kinds[0], 3), {.sequence_parallel = true},
                "kformer::LlamaModel: 3 ranks (tensor) do not divide the 4 tokens (batch x seq_len), as "
                "sequence_parallel wants; take a number of ranks that does");
  config = model(kinds[0], 3);
  config.vocab_size = 2;
  check_refused(config, {}, "kformer::LlamaModel: 3 ranks (tensor) do not divide vocab_size 2; take fewer");
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const LlamaModel<Exec, float> divided(
      model(kinds[0], 3), {1, 4},
      {.mode = LayerMode::inference, .tensor = std::make_shared<LoneCommunicator>(1, 3)}, *ledger);
  check_error<NotSupported>(
      [&] { LlamaDecoder<Exec, float>(divided, DecoderOptions{}, *ledger); },
      "kformer::LlamaDecoder: ranks divide the model (tensor); a decoder borrows whole ones alone");
  LayerOptions quantised{.lora = LoraConfig::all(2, 2),
                         .formats = {{"model.layers.2.self_attn.q_proj.weight", QuantizedFormat::nf4}}};
  check_refused(
      model(kinds[0], 3), quantised,
      "kformer::LlamaModel: self_attn.q_proj.weight stays quantised (NF4) in blocks that ranks (tensor) "
      "would divide; expand it");
  quantised.formats = {{"model.layers.2.mlp.down_proj.weight", QuantizedFormat::q8_0}};
  check_refused(
      model(kinds[0], 3), quantised,
      "kformer::LlamaModel: mlp.down_proj.weight stays quantised (Q8_0) in blocks that ranks (tensor) would "
      "divide; expand it, or take another number of ranks");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
