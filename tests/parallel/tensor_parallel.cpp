// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>

#include "kformer/model/llama_decoder.hpp"
#include "kformer/parallel/rank_grid.hpp"
#include "parallel/tensor_runs.hpp"
#include "support/errors.hpp"

// Ranks that divide a model compute what one does.
namespace kformer::Testing {
namespace {

// Those whose states may be of 8 bits.
using CodedScalars = std::tuple<float, bf16>;

// A trainer of a rank, and an optimizer of the whole weights.
template <class T>
struct CodedRun {
  std::shared_ptr<Ledger> ledger = Ledger::create(), of_whole = Ledger::create();
  Trainer<Exec, T> trainer;
  LlamaModel<Exec, T> model;
  Optimizer<Exec, T> optimizer;

  CodedRun(const TrainerOptions& options, const LlamaConfig& config)
      : trainer(config, options, *ledger),
        model(config, {1, 1}, {.mode = LayerMode::training}, *of_whole),
        optimizer(model.parameters(), options.optimizer, *of_whole) {
    const ModelInputs inputs = ModelInputs::random(config, {1, 1});
    for (const Parameter& p : trainer.model().parameters())
      write_parameter<T>(p.weight, part_of_array(inputs.weights.at(p.name), p));
    for (const Parameter& p : model.parameters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
    trainer.prepare(Exec());
    model.prepare(Exec());
    optimizer.prepare(Exec());
  }

  // With the gradients that the trainer had.
  void update_whole(double learning_rate) {
    const auto arrays = trainer.arrays();
    const auto& parts = trainer.optimizer().parameters();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto part = std::ranges::find(arrays, "optimizer.m." + parts[i].name, &NamedArray::name);
      const TensorRef& gradient = optimizer.parameters()[i].gradient;
      auto bits = bits_of(gradient);
      const auto own = bits_of(parts[i].gradient);
      const auto element = static_cast<std::int64_t>(size_of(gradient.dtype));
      for (std::int64_t k = 0; k < parts[i].gradient.size(); ++k)
        std::copy_n(own.begin() + k * element, element, bits.begin() + place_in_whole(*part, k) * element);
      Kokkos::deep_copy(
          Kokkos::View<unsigned char*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
              static_cast<unsigned char*>(gradient.data), bits.size()),
          on_device(bits));
    }
    BOOST_TEST(optimizer.step(Exec(), learning_rate));
  }

  // By the name that a trainer gives it.
  TensorRef whole_array(const std::string& name) const {
    for (const AdamWParameter& p : optimizer.parameters())
      for (const auto& [prefix, array] : {std::pair{"", p.weight},
                                          {"optimizer.master.", p.master},
                                          {"optimizer.m.", p.m},
                                          {"optimizer.v.", p.v},
                                          {"optimizer.m_scale.", p.m_scale},
                                          {"optimizer.v_scale.", p.v_scale}})
        if (prefix + p.name == name) return array;
    throw std::runtime_error(name);
  }
};

}  // namespace

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

// Ranks that have whole blocks of the states update them as an optimizer of whole weights does that gets the same gradients,
// bit for bit. What other ranks have does not matter for these blocks.
BOOST_AUTO_TEST_CASE_TEMPLATE(eight_bit_states_are_those_of_whole_weights, T, CodedScalars) {
  const auto ranks = world();
  for (int tensor = 1; tensor <= ranks->size(); ++tensor) {
    if (ranks->size() % tensor != 0) continue;
    const RankGrid grid(ranks, {.data = ranks->size() / tensor, .tensor = tensor});
    for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
      const LlamaConfig config = block_model(kinds[2], tensor);
      TrainerOptions options = options_of(kinds[2]);
      options.optimizer.states = OptimizerStates::eight_bit;
      options.optimizer.max_norm = 0;  // the norm is of all weights
      options.layer.tensor = grid.along(GridAxis::tensor);
      options.parallel = {.ranks = grid.along(GridAxis::data), .zero = zero};
      CodedRun<T> run(options, config);
      for (unsigned step = 0; step < 3; ++step) {
        const auto all = random_sequences(2 * ranks->size(), seq_len, step);
        const StepReport report = run.trainer.step(
            Exec(), std::span(all).subspan(static_cast<std::size_t>(2 * grid.place().data), 2));
        run.update_whole(report.learning_rate);
        for (const NamedArray& a : run.trainer.arrays()) {
          // Of a weight a rank also gets what others have updated.
          if (zero != ZeroStage::none && !a.name.starts_with("optimizer.")) continue;
          BOOST_TEST((bits_of(a.array) == bits_of_part(bits_of(run.whole_array(a.name)), a)),
                     name_of(zero) << ", " << tensor << " ranks, " << a.name);
        }
      }
      options.layer.tensor = std::make_shared<LoneCommunicator>(grid.place().tensor, tensor);
      options.parallel.ranks = std::make_shared<LoneCommunicator>(grid.place().data, grid.shape().data);
      const auto forecast = Ledger::create(Ledger::Mode::count);
      const Trainer<Exec, T> counted(config, options, *forecast);
      for (int c = 0; c < memory_classes; ++c) {
        const auto memory_class = static_cast<MemoryClass>(c);
        BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class), to_string(memory_class));
      }
    }
  }
}

// On every rank, also on those whose own part has whole blocks.
BOOST_AUTO_TEST_CASE(eight_bit_states_of_shared_blocks_are_refused) {
  const auto check_refused = [](const LlamaConfig& config, const std::string& name) {
    TrainerOptions options = options_of(kinds[0]);
    options.optimizer.states = OptimizerStates::eight_bit;
    for (int rank = 0; rank < 3; ++rank) {
      options.layer.tensor = std::make_shared<LoneCommunicator>(rank, 3);
      const auto ledger = Ledger::create(Ledger::Mode::count);
      check_error<NotSupported>(
          [&] { Trainer<Exec, float>(config, options, *ledger); },
          "kformer::Trainer: 3 ranks (tensor) would divide blocks of 256 8-bit states of " + name +
              "; take full states, or another number of ranks");
    }
  };
  check_refused(model(kinds[0], 3), "model.embed_tokens.weight");
  LlamaConfig config = block_model(kinds[0], 3);
  config.vocab_size = 100;  // the last rank begins with word 66
  check_refused(config, "model.embed_tokens.weight");
  config = block_model(kinds[0], 3);
  config.num_attention_heads = config.num_key_value_heads = 6;  // 128 features on each rank
  check_refused(config, "model.layers.0.self_attn.o_proj.weight");
  config = block_model(kinds[0], 3);
  config.intermediate_size = 3 * 264;
  check_refused(config, "model.layers.0.mlp.down_proj.weight");
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
