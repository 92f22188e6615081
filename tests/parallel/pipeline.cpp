// SPDX-License-Identifier: MIT
#include <cmath>

#include "parallel/pipeline_runs.hpp"
#include "support/errors.hpp"

// Ranks that divide the layers compute what one does.
namespace kformer::Testing {
BOOST_AUTO_TEST_SUITE(pipeline)

// With a last micro-batch that is cut short, and with fewer micro-batches than ranks.
BOOST_AUTO_TEST_CASE(stages_compute_what_one_rank_does) {
  const auto ranks = world();
  for (const Kind& kind : kinds)
    for (const Order& order : orders) {
      if (!may_run(order, kind)) continue;
      const LlamaConfig config = deep_model(kind, ranks->size() * order.parts);
      for (const std::int64_t sequences : {1, 7}) {
        TrainerOptions options = options_of(kind);
        const Run<double> alone(options, config, 0, sequences);
        options.pipeline = pipeline_on(ranks, order);
        Run<double> together(options, config, 0, sequences);
        check_close_to(alone, together,
                       std::string(kind.name) + ", " + name_of_order(order) + ", " + std::to_string(sequences));
      }
    }
}

// Parts get the kinds of their own layers.
BOOST_AUTO_TEST_CASE(layers_keep_what_a_schedule_says) {
  const auto ranks = world();
  const LlamaConfig config = deep_model(kinds[1], ranks->size());
  TrainerOptions options = options_of(kinds[1]);
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l)
    options.recompute.kinds.push_back(l % 3 == 0   ? Recompute::none
                                      : l % 3 == 1 ? Recompute::pointwise
                                                   : Recompute::layer);
  const Run<double> alone(options, config, 0, 5);
  options.pipeline = pipeline_on(ranks, orders[0]);
  Run<double> together(options, config, 0, 5);
  check_close_to(alone, together, "a schedule of recomputation");
}

// Everything is divided at once.
BOOST_AUTO_TEST_CASE(grids_compute_what_one_rank_does) {
  const auto ranks = world();
  std::size_t turn = 0;
  for (int stages = 2; stages <= ranks->size(); ++stages)
    for (int context = 1; context * stages <= ranks->size(); ++context)
      for (int tensor = 1; tensor * context * stages <= ranks->size(); ++tensor) {
        if (ranks->size() % (stages * context * tensor) != 0) continue;
        const int data = ranks->size() / (stages * context * tensor);
        const RankGrid grid(ranks, {.data = data, .context = context, .tensor = tensor, .pipeline = stages});
        for (const ZeroStage zero : {ZeroStage::none, ZeroStage::optimizer, ZeroStage::gradients}) {
          const Kind& kind = kinds[turn % 2];
          const Order& order = orders[turn++ % std::size(orders)];
          const LlamaConfig config = deep_model(kind, stages * order.parts, tensor);
          TrainerOptions options = options_of(kind);
          options.shape.seq_len = 48;
          const std::int64_t own = data > 2 ? 2 : 4;
          const Run<double> alone(options, config, 0, own * data);
          options.layer.context = grid.along(GridAxis::context);
          options.layer.tensor = grid.along(GridAxis::tensor);
          options.layer.sequence_parallel = turn % 3 != 0;
          options.parallel = {.ranks = grid.replicas(), .zero = zero};
          options.pipeline = pipeline_on(grid.pipeline(), order);
          const Dealt dealt(own * data, data, grid.place().data);
          const bool in_turns = zero == ZeroStage::gradients;
          Run<double> together(options, config, own * grid.place().data, own,
                               in_turns ? dealt.in_turns : EditSequences{});
          check_close_to(alone, together,
                         std::to_string(data) + " x " + std::to_string(context) + " x " +
                             std::to_string(tensor) + " x " + std::to_string(stages) + ", " +
                             std::string(name_of(zero)) + ", " + name_of_order(order));
        }
      }
}

// In the fixed order stages compute the bits of one rank, also where the last micro-batch is cut short.
BOOST_AUTO_TEST_CASE_TEMPLATE(the_fixed_order_has_the_bits_of_one_rank, T, Scalars) {
  const auto ranks = world();
  for (int stages = 1; stages <= ranks->size(); ++stages) {
    const int data = ranks->size() / stages;
    if (data * stages != ranks->size() || (data & (data - 1)) != 0 || data > 4) continue;
    const RankGrid grid(ranks, {.data = data, .pipeline = stages});
    for (const Kind& kind : {kinds[1], kinds[2]})
      for (const Order& order : orders) {
        const LlamaConfig config = deep_model(kind, stages * order.parts);
        TrainerOptions options = options_of(kind);
        options.layer.recompute = Recompute::pointwise;
        options.layer.accumulate = false;
        options.parallel = {.fixed_order = true, .micro_batches = 4};
        const Run<T> alone(options, config, 0, 7);
        const std::int64_t own = 8 / data, first = own * grid.place().data;
        options.parallel = {.ranks = grid.along(GridAxis::data), .fixed_order = true, .micro_batches = own / 2};
        options.pipeline = pipeline_on(grid.pipeline(), order);
        if (needs_overtaking(config, order) && stages > 1 && ranks->keeps_order()) {
          check_error<NotSupported>(
              [&] { Run<T>(options, config, first, 0); },
              "kformer::Trainer: with fixed_order and the schedule interleaved, gradients of a "
              "tied embedding are overtaken by other messages, which NCCL launches in order; "
              "choose another schedule, or MPI");
          continue;
        }
        // A forecast that one rank makes alone, as when it looks for what to recompute.
        const auto counts = Ledger::create(Ledger::Mode::count);
        if (ranks->rank() == 0) {
          const Trainer<Exec, T> forecast(config, options, *counts);
        }
        Run<T> together(options, config, first, std::min<std::int64_t>(own, 7 - first));
        check_bits_of(alone, together,
                      std::to_string(data) + " x " + std::to_string(stages) + ", " + kind.name + ", " +
                          name_of_order(order));
        check_forecast(options, config, grid, together);
      }
  }
}

// And those of the same ranks that divide the weights, without stages.
BOOST_AUTO_TEST_CASE(the_fixed_order_of_divided_weights_does_not_depend_on_stages) {
  const auto ranks = world();
  if (ranks->size() % 2 != 0) return;
  const RankGrid whole(ranks, {.data = ranks->size() / 2, .tensor = 2}),
      grid(ranks, {.tensor = 2, .pipeline = ranks->size() / 2});
  for (const Order& order : {orders[0], orders[3]}) {
    const LlamaConfig config = deep_model(kinds[1], grid.shape().pipeline, 2);
    TrainerOptions options = options_of(kinds[1]);
    options.parallel = {.fixed_order = true, .micro_batches = 4};
    options.layer.tensor = whole.along(GridAxis::tensor);
    const Run<double> alone(options, config, 0, 8);
    options.layer.tensor = grid.along(GridAxis::tensor);
    options.pipeline = pipeline_on(grid.pipeline(), order);
    Run<double> together(options, config, 0, 8);
    check_bits_of(alone, together, name_of_order(order));
  }
}

// All know the same of a step; the first and the last stage have the same embedding.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  TrainerOptions options = options_of(kinds[1]);
  options.pipeline = pipeline_on(ranks, orders[3]);
  Run<T> run(options, deep_model(kinds[1], ranks->size()), 0, 5);
  for (const StepReport& report : run.reports) {
    equal.check(report.loss, "loss");
    equal.check(report.gradient_norm, "norm");
  }
  for (const double loss : run.evaluations) equal.check(loss, "evaluation");
  const auto weights = run.weights();
  const auto embedding = weights.find("model.embed_tokens.weight");
  const int last = ranks->size() - 1;
  BOOST_TEST((embedding != weights.end()) == (ranks->rank() == 0 || ranks->rank() == last));
  const auto ledger = Ledger::create();
  Collectives<Exec> all(ranks, {}, *ledger);
  const auto words = static_cast<std::size_t>(75 * 40);
  const auto of_first = on_device(embedding == weights.end() ? std::vector<double>(words) : embedding->second);
  all.broadcast(Exec(), of_first, 0);
  if (embedding != weights.end()) BOOST_TEST((on_host(of_first) == embedding->second));
}

BOOST_AUTO_TEST_CASE(adapters_with_dropout_on_packed_documents) {
  const auto ranks = world();
  const LlamaConfig config = deep_model(kinds[2], ranks->size());
  TrainerOptions options = options_of(kinds[2]);
  options.layer.lora = LoraConfig::all(2, 4);
  options.layer.lora.dropout = 0.2;
  options.layer.packed = true;
  const auto adapted = [&](const TrainerOptions& o) {
    struct Adapted {
      std::shared_ptr<Ledger> ledger = Ledger::create();
      Trainer<Exec, double> trainer;
      std::vector<StepReport> reports;
      Adapted(const LlamaConfig& c, const TrainerOptions& o2) : trainer(c, o2, *ledger) {}
    };
    auto run = std::make_unique<Adapted>(config, o);
    const ModelInputs inputs = ModelInputs::random(config, {1, 1});
    for (auto& part : run->trainer.parts()) {
      for (const Parameter& p : part.parameters()) write_parameter<double>(p.weight, inputs.weights.at(p.name));
      for (const Parameter& p : part.adapters()) write_parameter<double>(p.weight, random_adapter(p));
    }
    run->trainer.prepare(Exec());
    for (unsigned step = 0; step < 3; ++step) {
      auto sequences = random_sequences(5, seq_len, 100 + step);
      for (std::size_t i = 0; i < sequences.size(); ++i)
        if (i % 2 == 1) sequences[i].starts = {0, 2, 5};
      run->reports.push_back(run->trainer.step(Exec(), sequences));
    }
    return run;
  };
  const auto alone = adapted(options);
  options.pipeline = pipeline_on(ranks, orders[0]);
  const auto together = adapted(options);
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(std::abs(together->reports[i].loss - alone->reports[i].loss) <= 1e-12 * alone->reports[i].loss);
    BOOST_TEST(std::abs(together->reports[i].gradient_norm - alone->reports[i].gradient_norm) <=
               1e-12 * alone->reports[i].gradient_norm);
  }
}

// The logits of a token are on all ranks, and those of one.
BOOST_AUTO_TEST_CASE(every_rank_gets_the_logits) {
  const auto ranks = world();
  const LlamaConfig config = deep_model(kinds[0], ranks->size());
  TrainerOptions options = options_of(kinds[0]);
  Run<double> alone(options, config, 0, 3);
  options.pipeline = pipeline_on(ranks, orders[0]);
  Run<double> together(options, config, 0, 3);
  const auto logits_of = [&](Run<double>& run) {
    const auto block = run.ledger->template allocate<Exec::memory_space>(MemoryClass::workspace, "logits",
                                                                         75 * sizeof(double));
    const auto logits = Impl::matrix_in<double>(block, 0, 1, config.vocab_size);
    run.trainer.forward(Exec(), random_sequences(2, seq_len));
    run.trainer.logits(Exec(), 1, 4, logits);
    Kokkos::fence("logits");
    const auto copy = Kokkos::create_mirror_view_and_copy(
        Kokkos::HostSpace{}, Kokkos::View<double*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                                 logits.data(), logits.size()));
    return std::vector<double>(copy.data(), copy.data() + copy.size());
  };
  const auto expected = logits_of(alone), got = logits_of(together);
  for (std::size_t i = 0; i < expected.size(); ++i) BOOST_TEST(std::abs(got[i] - expected[i]) <= 1e-11);
}

// Of a step whose gradients are put off, or made at once.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_that_are_put_off_have_the_same_bits, T, Scalars) {
  LoraConfig none, adapters = LoraConfig::all(3, 5), dropped = adapters;
  adapters.magnitudes = dropped.magnitudes = true;
  dropped.dropout = 0.3;
  for (const LoraConfig& lora : {none, LoraConfig::all(3, 5), adapters, dropped})
    for (const Recompute recompute : {Recompute::none, Recompute::pointwise}) {
      Kind kind = kinds[2];
      kind.bias = true;
      const LlamaConfig config = model(kind, 1);
      const ModelInputs inputs = ModelInputs::random(config, {2, 6});
      const auto bits = [&](bool split) {
        const auto ledger = Ledger::create();
        LlamaModel<Exec, T> m(config, {2, 6}, {.recompute = recompute, .split_backward = split, .lora = lora},
                              *ledger);
        for (const Parameter& p : m.parameters()) write_parameter<T>(p.weight, inputs.weights.at(p.name));
        for (const Parameter& p : m.adapters()) write_parameter<T>(p.weight, random_adapter(p));
        m.prepare(Exec());
        if (lora.dropout > 0) m.set_dropout(DropoutDraw{5, 1, 0});
        const auto ids = on_device(inputs.ids), targets = on_device(inputs.targets);
        const auto dloss = on_device(std::vector<compute_t<T>>(12, compute_t<T>(0.1))),
                   loss = on_device(std::vector<compute_t<T>>(12));
        m.forward(Exec(), ids);
        m.backward(Exec(), ids, targets, dloss, loss);
        if (split) m.backward_weights(Exec());
        Kokkos::fence("gradients");
        std::map<std::string, std::vector<unsigned char>> all;
        for (const Parameter& p : m.trained()) all[p.name] = bits_of(p.gradient);
        return all;
      };
      const auto at_once = bits(false), put_off = bits(true);
      for (const auto& [name, values] : at_once) BOOST_TEST((put_off.at(name) == values), name);
    }
}

BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  const auto ranks = world();
  for (const Order& order : orders)
    for (const std::int64_t micro_batches : {0, 2}) {
      TrainerOptions options = options_of(kinds[1]);
      const RankGrid grid(ranks, {.pipeline = ranks->size()});
      const LlamaConfig config = deep_model(kinds[1], ranks->size() * order.parts);
      options.pipeline = pipeline_on(grid.pipeline(), order);
      options.pipeline.micro_batches = micro_batches;
      const Run<bf16> run(options, config, 0, 4);
      check_forecast(options, config, grid, run);
    }
}

// The states of each micro-batch go to the next part, and their gradients back.
BOOST_AUTO_TEST_CASE(bytes_are_those_of_the_formula) {
  for (const Order& order : orders) {
    const auto ranks = world();
    TrainerOptions options = options_of(kinds[0]);
    options.pipeline = pipeline_on(ranks, order);
    const LlamaConfig config = deep_model(kinds[0], ranks->size() * order.parts);
    const auto ledger = Ledger::create();
    Trainer<Exec, double> trainer(config, options, *ledger);
    trainer.prepare(Exec());
    (void)trainer.step(Exec(), random_sequences(5, seq_len));
    std::uint64_t sent = 0;
    for (const auto& entry : ranks->log().counts())
      if (entry.region == "states" || entry.region == "gradients of states") sent += entry.bytes;
    const int last = ranks->size() - 1, parts = options.pipeline.parts;
    const std::int64_t ways =
        ranks->size() == 1 ? 0 : 2 * parts - (ranks->rank() == 0 ? 1 : 0) - (ranks->rank() == last ? 1 : 0);
    BOOST_TEST(sent ==
               static_cast<std::uint64_t>(3 * ways * batch * seq_len * config.hidden_size) * sizeof(double));
  }
}

BOOST_AUTO_TEST_CASE(what_a_pipeline_does_not_go_with_is_refused) {
  const auto check_refused = [](const TrainerOptions& options, const LlamaConfig& config,
                                const std::string& text) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    check_error<NotSupported>([&] { Trainer<Exec, float>(config, options, *ledger); },
                              "kformer::Trainer: " + text);
    for (int c = 0; c < memory_classes; ++c) BOOST_TEST(ledger->peak(static_cast<MemoryClass>(c)) == 0u);
  };
  const auto lone = std::make_shared<PipelineLinks>(std::make_shared<LoneCommunicator>(1, 3));
  const LlamaConfig config = model(kinds[0], 1);
  TrainerOptions options = options_of(kinds[0]);
  options.pipeline = {.ranks = lone};
  options.parallel = {.overlap = true};
  check_refused(options, config,
                "the gradients of a pipeline are reduced at the end of a step; leave out parallel.overlap");
  options.pipeline = {.ranks = lone, .schedule = PipelineSchedule::interleaved, .parts = 2};
  options.parallel = {};
  check_refused(options, config,
                "a pipeline of 3 ranks with 2 parts each needs as many layers, got 3 (num_hidden_layers)");
}

// Parts and slots by hand.
BOOST_AUTO_TEST_CASE(calls_that_a_part_does_not_allow_are_refused) {
  const LlamaConfig config = model(kinds[0], 1);
  const auto ledger = Ledger::create();
  const LayerShape shape{1, 4};
  const auto schedule = [](std::int64_t layers) { return RecomputeSchedule::uniform(Recompute::none, layers); };
  check_error<DimensionMismatch>(
      [&] { LlamaModel<Exec, float>(config, shape, {}, *ledger, schedule(3), {2, 5}); },
      "kformer::LlamaModel: there are no layers [2, 5) in a model of 3");
  check_error<DimensionMismatch>(
      [&] { LlamaModel<Exec, float>(config, shape, {}, *ledger, schedule(3), {0, 2}); },
      "kformer::LlamaModel: the recomputation schedule is for 3 layers, expected 2 of this part");
  LlamaModel<Exec, float> first(config, shape, {.slots = 2, .split_backward = true}, *ledger, schedule(1),
                                {0, 1});
  LlamaModel<Exec, float> last(config, shape, {}, *ledger, schedule(2), {1, 3});
  BOOST_TEST(first.has_embedding());
  BOOST_TEST(!first.has_head());
  BOOST_TEST(last.has_head());
  for (auto* part : {&first, &last}) {
    for (const Parameter& p : part->parameters())
      write_parameter<float>(p.weight, ModelInputs::random(config, {1, 1}).weights.at(p.name));
    part->prepare(Exec());
  }
  const auto ids = on_device(std::vector<std::int32_t>{1, 2, 3, 4});
  const auto numbers = on_device(std::vector<float>(4));
  check_error<NotSupported>(
      [&] { last.forward(Exec(), ids); },
      "kformer::LlamaModel::forward: a part that begins with layer 1 has no embedding; call "
      "forward_embedded");
  check_error<NotSupported>(
      [&] { (void)last.states(); },
      "kformer::LlamaModel::states: layers [1, 3) are a part with the head; pass targets to "
      "`backward`");
  check_error<NotSupported>(
      [&] { first.loss(Exec(), ids, numbers); },
      "kformer::LlamaModel::loss: layers [0, 1) are a part without the head; the last part of "
      "the model has it");
  check_error<NotSupported>(
      [&] { first.use_slot(2); },
      "kformer::LlamaModel::use_slot: there is no slot 2, only 0 to 1 (LayerOptions::slots)");
  first.forward(Exec(), ids);
  first.use_slot(1);
  check_error<NotSupported>(
      [&] { (void)first.states(); },
      "kformer::LlamaModel::states: there are no hidden states; call forward(exec, ids) first");
  first.use_slot(0);
  first.backward_states(Exec(), ids, first.states());
  first.backward_weights(Exec());
  check_error<NotSupported>(
      [&] { first.backward_weights(Exec()); },
      "kformer::LlamaModel::backward_weights: each backward allows one backward_weights; call "
      "forward and backward first");
  check_error<NotSupported>([&] { last.backward_weights(Exec()); },
                            "kformer::LlamaModel::backward_weights: backward has made these gradients; set "
                            "LayerOptions::split_backward");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
