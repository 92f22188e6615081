// SPDX-License-Identifier: MIT
#include <cmath>
#include <map>

#include "kformer/parallel/rank_grid.hpp"
#include "parallel/pipeline_runs.hpp"

// Ranks that divide a model with adapters compute what one does.
namespace kformer::Testing {
namespace {

struct Adapters {
  const char* name;
  LoraConfig lora;
};

std::vector<Adapters> kinds_of_adapters() {
  LoraConfig all = LoraConfig::all(3, 5), dropped = all, scaled = all, some;
  all.learning_rate_ratio = 4;
  dropped.dropout = 0.3;
  scaled.magnitudes = true;
  some[Projection::k] = {.rank = 2, .alpha = 3};
  some[Projection::o] = {.rank = 4, .alpha = 1};
  some[Projection::up] = {.rank = 1, .alpha = 2};
  some.rank_stabilized = true;
  some.dropout = 0.2;
  LoraConfig scaled_and_dropped = scaled;
  scaled_and_dropped.dropout = 0.3;
  scaled_and_dropped[Projection::v].rank = 0;
  return {{"all", all},
          {"all, dropout", dropped},
          {"all, magnitudes", scaled},
          {"most, magnitudes and dropout", scaled_and_dropped},
          {"some", some}};
}

TrainerOptions options_with(const Kind& kind, const Adapters& adapters) {
  TrainerOptions options = options_of(kind);
  options.layer.lora = adapters.lora;
  options.dropout_seed = 7;
  options.shape.seq_len = 12;  // with two sequences, tokens for 8 ranks
  return options;
}

// Most matrices, with extents that blocks divide on each of some ranks.
LlamaConfig quantised_model(int ranks) {
  LlamaConfig config = model(kinds[0], ranks);
  config.hidden_size = 64;
  config.head_dim = 16;
  config.intermediate_size = 64 * ranks;
  return config;
}

WeightFormats some_formats(const LlamaConfig& config) {
  WeightFormats formats;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer)
    for (std::size_t i = 0; i < names_of<Projection>.size(); ++i)
      if (i % 3 != 2)
        formats["model.layers." + std::to_string(layer) + "." +
                projection_weight_name(static_cast<Projection>(i))] =
            layer == 0 ? QuantizedFormat::q4_1 : QuantizedFormat::q8_0;
  return formats;
}

// Of as many layers as each of some stages needs.
LlamaConfig put_off_model(TrainerOptions& options, bool quantised) {
  LlamaConfig config = quantised ? quantised_model(1) : model(kinds[1], 1);
  config.num_hidden_layers = world()->size() + 1;
  if (quantised) options.layer.formats = some_formats(config);
  return config;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tensor_adapters)

BOOST_AUTO_TEST_CASE(ranks_that_divide_adapters_compute_what_one_does) {
  const auto ranks = world();
  std::size_t turn = 0;
  for (const Adapters& adapters : kinds_of_adapters())
    for (const std::size_t next : {0, 1}) {
      const Kind& kind = kinds[(turn + next) % std::size(kinds)];
      turn += next;
      const LlamaConfig config = model(kind, ranks->size());
      TrainerOptions options = options_with(kind, adapters);
      const Run<double> alone(options, config, 0, 5);
      options.layer.tensor = ranks;
      for (const bool sequence_parallel : {false, true}) {
        options.layer.sequence_parallel = sequence_parallel;
        Run<double> together(options, config, 0, 5);
        check_close_to(alone, together,
                       std::string(adapters.name) + ", " + kind.name +
                           (sequence_parallel ? ", and the tokens of states" : ""));
      }
    }
}

// Each model is divided among some ranks, and its sequences among others.
BOOST_AUTO_TEST_CASE(grids_compute_what_one_rank_does) {
  const auto ranks = world();
  const auto all = kinds_of_adapters();
  std::size_t turn = 0;
  for (int tensor = 2; tensor <= ranks->size(); ++tensor) {
    if (ranks->size() % tensor != 0) continue;
    const int data = ranks->size() / tensor;
    const RankGrid grid(ranks, {.data = data, .tensor = tensor});
    for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
      const Kind& kind = kinds[turn % 3];
      const Adapters& adapters = all[turn++ % all.size()];
      const LlamaConfig config = model(kind, tensor);
      TrainerOptions options = options_with(kind, adapters);
      options.layer.packed = true;
      const EditSequences pack = [](std::vector<TokenSequence>& all_sequences) {
        for (std::size_t i = 1; i < all_sequences.size(); i += 2) all_sequences[i].starts = {0, 2, 5};
      };
      const Run<double> alone(options, config, 0, 2 * data, pack);
      options.layer.tensor = grid.along(GridAxis::tensor);
      options.layer.sequence_parallel = zero != ZeroStage::optimizer;
      options.parallel = {.ranks = grid.along(GridAxis::data), .zero = zero, .overlap = data % 2 == 0};
      Run<double> together(options, config, 2 * grid.place().data, 2, pack);
      check_close_to(alone, together,
                     std::to_string(data) + " x " + std::to_string(tensor) + ", " + std::string(name_of(zero)) +
                         ", " + adapters.name + ", " + kind.name);
    }
  }
}

// Ranks divide layers and tokens, too.
BOOST_AUTO_TEST_CASE(all_axes_compute_what_one_rank_does) {
  const auto ranks = world();
  const auto all = kinds_of_adapters();
  std::size_t turn = 0;
  for (int stages = 1; stages <= ranks->size(); ++stages)
    for (int context = 1; context * stages <= ranks->size(); ++context) {
      if (ranks->size() % (stages * context) != 0 || stages * context == 1) continue;
      const int tensor = ranks->size() / (stages * context);
      if (tensor == 1) continue;
      const RankGrid grid(ranks, {.context = context, .tensor = tensor, .pipeline = stages});
      const Kind& kind = kinds[turn % 2];
      const Adapters& adapters = all[(turn + 2) % all.size()];
      const PipelineSchedule schedule = static_cast<PipelineSchedule>(turn++ % 3);
      const bool interleaved = schedule == PipelineSchedule::interleaved && stages > 1;
      LlamaConfig config = model(kind, tensor);
      config.num_hidden_layers = 2 * stages + 1;
      TrainerOptions options = options_with(kind, adapters);
      options.shape.seq_len = 48;
      const Run<double> alone(options, config, 0, 5);
      options.layer.context = grid.along(GridAxis::context);
      options.layer.tensor = grid.along(GridAxis::tensor);
      options.layer.sequence_parallel = context == 1;
      options.parallel = {.ranks = grid.replicas(), .zero = ZeroStage::optimizer};
      if (stages > 1)
        options.pipeline = {.ranks = grid.pipeline(), .schedule = schedule, .parts = interleaved ? 2 : 1};
      Run<double> together(options, config, 0, 5);
      check_close_to(alone, together,
                     std::to_string(context) + " x " + std::to_string(tensor) + " x " + std::to_string(stages) +
                         ", " + adapters.name + ", " + kind.name);
    }
}

// With ZB-H1 stages put off the gradients of adapters, of dense weights and of quantised ones.
BOOST_AUTO_TEST_CASE(stages_that_put_off_gradients_compute_what_one_does) {
  const auto ranks = world();
  for (const Adapters& adapters : kinds_of_adapters())
    for (const bool quantised : {false, true})
      for (const ZeroStage zero : {ZeroStage::none, ZeroStage::gradients}) {
        TrainerOptions options = options_with(kinds[quantised ? 0 : 1], adapters);
        const LlamaConfig config = put_off_model(options, quantised);
        const Run<double> alone(options, config, 0, 7);
        options.parallel.zero = zero;
        options.pipeline = pipeline_on(ranks, orders[3]);
        Run<double> together(options, config, 0, 7);
        check_close_to(
            alone, together,
            std::string(adapters.name) + (quantised ? ", quantised, " : ", ") + std::string(name_of(zero)));
      }
}

// In the fixed order they have the bits of one rank.
BOOST_AUTO_TEST_CASE(stages_of_adapters_keep_the_fixed_order) {
  const auto ranks = world();
  for (const Adapters& adapters : kinds_of_adapters())
    for (const Order& order : {orders[0], orders[1], orders[3]}) {
      TrainerOptions options = options_with(kinds[2], adapters);
      options.layer.accumulate = false;
      options.layer.recompute = Recompute::pointwise;
      options.parallel = {.fixed_order = true, .micro_batches = 4};
      const LlamaConfig config = deep_model(kinds[2], ranks->size() * order.parts);
      const Run<float> alone(options, config, 0, 7);
      options.pipeline = pipeline_on(ranks, order);
      Run<float> together(options, config, 0, 7);
      check_bits_of(alone, together, std::string(adapters.name) + ", " + name_of_order(order));
    }
}

// Rows of all matrices, and columns where ranks divide none of their blocks.
BOOST_AUTO_TEST_CASE(weights_may_stay_quantised) {
  const auto ranks = world();
  const LlamaConfig config = quantised_model(ranks->size());
  for (const Adapters& adapters : kinds_of_adapters()) {
    TrainerOptions options = options_with(kinds[0], adapters);
    options.layer.formats = some_formats(config);
    const Run<double> alone(options, config, 0, 3);
    options.layer.tensor = ranks;
    options.layer.sequence_parallel = adapters.lora.magnitudes;
    Run<double> together(options, config, 0, 3);
    check_close_to(alone, together, adapters.name);
  }
}

// What every rank has stays the same on all, and so do losses.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  TrainerOptions options = options_with(kinds[2], kinds_of_adapters()[3]);
  options.layer.tensor = ranks;
  options.layer.sequence_parallel = true;
  const LlamaConfig config = model(kinds[2], ranks->size());
  Run<T> run(options, config, 0, 3);
  for (const StepReport& report : run.reports) {
    equal.check(report.loss, "loss");
    equal.check(report.gradient_norm, "norm");
  }
  const auto weights = run.weights();
  std::int64_t whole = 0, all = 0;
  for (const Parameter& p : run.trainer.model().adapters()) {
    all += p.weight.size() * (p.slice.divides() ? ranks->size() : 1);
    if (p.slice.divides()) continue;
    whole += p.weight.size();
    for (const double value : weights.at(p.name)) equal.check(value, p.name);
  }
  BOOST_TEST(all == adapter_parameter_count(config, options.layer.lora));
  if (ranks->size() > 1) BOOST_TEST(whole == whole_adapter_parameter_count(config, options.layer.lora));
}

// To the byte.
BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  for (const Adapters& adapters : kinds_of_adapters())
    for (const bool sequence_parallel : {false, true}) {
      TrainerOptions options = options_with(kinds[1], adapters);
      const LlamaConfig config = model(kinds[1], ranks->size());
      options.layer.tensor = ranks;
      options.layer.sequence_parallel = sequence_parallel;
      const Run<bf16> run(options, config, 0, 2);
      options.layer.tensor = std::make_shared<LoneCommunicator>(ranks->rank(), ranks->size());
      const auto forecast = Ledger::create(Ledger::Mode::count);
      const Trainer<Exec, bf16> counted(config, options, *forecast);
      for (int c = 0; c < memory_classes; ++c) {
        const auto memory_class = static_cast<MemoryClass>(c);
        BOOST_TEST(forecast->peak(memory_class) == run.ledger->peak(memory_class),
                   adapters.name << ", " << to_string(memory_class));
      }
    }
}

// Sums of activations as without adapters. Once a step the gradients of what every rank has, and with magnitudes in each
// forward the norms of the rows of o and down.
BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formula) {
  const auto ranks = world();
  if (ranks->size() == 1) return;
  for (const bool magnitudes : {false, true}) {
    TrainerOptions options = options_of(kinds[0]);
    const std::int64_t rank = 3;
    options.layer.lora = LoraConfig::all(rank, 5);
    options.layer.lora.magnitudes = magnitudes;
    const LlamaConfig config = model(kinds[0], ranks->size());
    options.layer.tensor = ranks;
    const auto ledger = Ledger::create();
    Trainer<Exec, double> trainer(config, options, *ledger);
    trainer.prepare(Exec());
    std::map<std::string, std::uint64_t> before, sent;
    for (const auto& entry : ranks->log().counts()) before[entry.region] += entry.bytes;
    const std::int64_t micro_batches = 2;
    (void)trainer.step(Exec(), random_sequences(micro_batches * batch, seq_len));
    for (const auto& entry : ranks->log().counts())
      if (entry.operation == "all_reduce") sent[entry.region] += entry.bytes;
    const auto bytes = [&](std::int64_t elements) {
      const std::int64_t n = ranks->size(), each = (elements + n - 1) / n;
      const std::int64_t own = std::min(each, std::max<std::int64_t>(0, elements - ranks->rank() * each));
      return static_cast<std::uint64_t>(8 * (elements - own + (n - 1) * own));
    };
    const auto layers = static_cast<std::uint64_t>(config.num_hidden_layers),
               times = static_cast<std::uint64_t>(micro_batches);
    const std::uint64_t sum = bytes(batch * seq_len * config.hidden_size);
    const auto of_step = [&](const char* region) { return sent[region] - before[region]; };
    BOOST_TEST(of_step("activations") == times * 2 * layers * sum);
    BOOST_TEST(of_step("gradients of activations") == times * (2 * layers + 1) * sum);
    // A of q, k, v, gate and up, B of o and down, and magnitudes of these.
    BOOST_TEST(of_step("gradients") == layers * (7 * bytes(rank * config.hidden_size) +
                                                 (magnitudes ? 2 * bytes(config.hidden_size) : 0)));
    BOOST_TEST(of_step("norms of rows") == (magnitudes ? times * layers * 2 * bytes(config.hidden_size) : 0));
  }
}

// The parts of one model, whose magnitudes start as the norms of whole rows.
BOOST_AUTO_TEST_CASE(merged_weights_are_those_of_one_rank) {
  const auto ranks = world();
  const LlamaConfig config = model(kinds[1], ranks->size());
  for (const bool reset : {false, true})
    for (const bool magnitudes : {false, true}) {
      LoraConfig lora = LoraConfig::all(2, 3);
      lora.magnitudes = magnitudes;
      const ModelInputs inputs = ModelInputs::random(config, {1, 1}, 5, lora);
      const auto merged = [&](const std::shared_ptr<Communicator>& tensor) {
        const auto ledger = Ledger::create();
        const LayerOptions options{.lora = lora, .tensor = tensor};
        LlamaModel<Exec, double> m(config, {1, 4}, options, *ledger);
        for (const auto& all : {m.parameters(), m.adapters()})
          for (const Parameter& p : all)
            write_parameter<double>(p.weight, part_of_array(inputs.weights.at(p.name), p));
        if (reset) m.reset_magnitudes(Exec());
        m.merge_adapters(Exec());
        Kokkos::fence("kformer::Testing::merged");
        Numbers all;
        add_numbers(m.parameters(), all);
        add_numbers(m.adapters(), all);
        return all;
      };
      check_parts(merged(ranks), merged(nullptr));
    }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
