// SPDX-License-Identifier: MIT
#include <functional>

#include "kformer/model/impl/ring_messages.hpp"
#include "parallel/context_runs.hpp"
#include "support/errors.hpp"

// Keys and values that go round in a ring.
namespace kformer::Testing {
namespace {

TrainerOptions ring_options(const Kind& kind) {
  TrainerOptions options = long_options(kind);
  options.layer.context_exchange = ContextExchange::ring;
  return options;
}

// Attention kernels that begin while messages of a ring are under way, and those that do not.
struct Timeline {
  Timeline() : previous(Kokkos::Tools::Experimental::get_callbacks()) {
    namespace Tools = Kokkos::Tools::Experimental;
    under_way = hidden = waiting = 0;
    Tools::set_callbacks(Tools::EventSet{});
    Tools::set_create_profile_section_callback([](const char*, std::uint32_t* id) { *id = 0; });
    Tools::set_start_profile_section_callback([](std::uint32_t) { ++under_way; });
    Tools::set_stop_profile_section_callback([](std::uint32_t) { --under_way; });
    Tools::set_begin_parallel_for_callback([](const char* name, std::uint32_t, std::uint64_t*) {
      if (std::string_view(name).starts_with("kformer::attention_forward"))
        ++(under_way > 0 ? hidden : waiting);
    });
  }
  ~Timeline() { Kokkos::Tools::Experimental::set_callbacks(previous); }

  static inline int under_way = 0, hidden = 0, waiting = 0;
  Kokkos::Tools::Experimental::EventSet previous;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(context_ring)

BOOST_AUTO_TEST_CASE(keys_that_go_round_give_what_one_rank_computes) {
  for (const Kind& kind : kinds)
    for (const bool causal : {true, false}) {
      TrainerOptions options = ring_options(kind);
      options.layer.causal = causal;
      check_context(options, model(kind, 1), std::string(kind.name) + (causal ? ", causal" : ", not causal"));
    }
}

BOOST_AUTO_TEST_CASE(chunks_of_one_token) {
  TrainerOptions options = ring_options(kinds[0]);
  options.shape.seq_len = 2 * world()->size();
  check_context(options, model(kinds[0], 1), "chunks of one token");
}

BOOST_AUTO_TEST_CASE(three_heads_share_keys) {
  LlamaConfig config = model(kinds[2], 1);
  config.num_attention_heads = 9;
  config.num_key_value_heads = 3;
  check_context(ring_options(kinds[2]), config, "9 heads");
}

BOOST_AUTO_TEST_CASE(documents_go_round) {
  for (const bool causal : {true, false}) {
    TrainerOptions options = ring_options(kinds[1]);
    options.layer.packed = true;
    options.layer.causal = causal;
    check_context(options, model(kinds[1], 1), causal ? "documents" : "documents, not causal", pack_documents);
  }
}

BOOST_AUTO_TEST_CASE(adapters_lose_the_same_elements) {
  TrainerOptions options = ring_options(kinds[0]);
  options.layer.lora = LoraConfig::all(2, 4);
  options.layer.lora.dropout = 0.25;
  check_context(options, model(kinds[0], 1), "adapters");
}

BOOST_AUTO_TEST_CASE(rings_on_grids) {
  for (const GridIndex& shape : context_grids(world()->size()))
    check_grid(world(), shape, ring_options(kinds[2]), model(kinds[2], shape.tensor));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_agree_to_the_bit, T, Scalars) {
  const auto ranks = world();
  EqualOnAllRanks equal(ranks);
  TrainerOptions options = ring_options(kinds[2]);
  place_on(context_alone(ranks), options);
  Run<T> run(options, model(kinds[2], 1), 0, 3);
  for (const StepReport& report : run.reports) {
    equal.check(report.loss, "loss");
    equal.check(report.gradient_norm, "norm");
  }
  for (const auto& [name, values] : run.weights())
    for (const double value : values) equal.check(value, name);
}

BOOST_AUTO_TEST_CASE(forecasts_are_what_ranks_need) {
  for (const Kind& kind : {kinds[0], kinds[2]})
    check_forecast<bf16>(world(), ring_options(kind), model(kind, 1), kind.name);
  TrainerOptions packed = ring_options(kinds[1]);
  packed.layer.packed = true;
  check_forecast<double>(world(), packed, model(kinds[1], 1), "packed", pack_documents);
}

// All that all_gather needs grows with the ranks.
BOOST_AUTO_TEST_CASE(workspace_does_not_depend_on_the_ranks) {
  const auto workspace = [](ContextExchange exchange, int ranks) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    LayerOptions options{.context = std::make_shared<LoneCommunicator>(1, ranks), .context_exchange = exchange};
    const DecoderLayer<Exec, bf16> layer(model(kinds[0], 1), {2, 32}, options, *ledger);
    return ledger->peak(MemoryClass::workspace);
  };
  BOOST_TEST(workspace(ContextExchange::ring, 2) == workspace(ContextExchange::ring, 8));
  BOOST_TEST(workspace(ContextExchange::all_gather, 2) < workspace(ContextExchange::all_gather, 8));
  BOOST_TEST(workspace(ContextExchange::ring, 8) < workspace(ContextExchange::all_gather, 8));
}

// Keys and values go round once in forward and once in backward, where their gradients come home in as many shifts.
BOOST_AUTO_TEST_CASE_TEMPLATE(bytes_are_those_of_the_formula, T, Scalars) {
  const auto ranks = world();
  const RankGrid grid = context_alone(ranks);
  const LlamaConfig config = model(kinds[0], 1);
  TrainerOptions options = ring_options(kinds[0]);
  place_on(grid, options);
  const auto ledger = Ledger::create();
  Trainer<Exec, T> trainer(config, options, *ledger);
  trainer.prepare(Exec());
  (void)trainer.step(Exec(), random_sequences(batch, long_sequence));
  const std::int64_t n = ranks->size(), shifts = config.num_hidden_layers * (n - 1);
  const std::int64_t elements = batch * long_sequence / n * 2 * config.num_key_value_heads * config.head_dim;
  std::map<std::string, CommunicationCount> sent;
  for (const auto& entry : grid.along(GridAxis::context)->log().counts())
    if (entry.operation == "shift") sent[entry.region] = entry;
  BOOST_TEST(sent.size() == (n > 1 ? 2u : 0u));
  const CommunicationCount &pairs = sent["keys and values"], &sums = sent["gradients of keys and values"];
  BOOST_TEST(pairs.bytes == static_cast<std::uint64_t>(2 * shifts * elements) * sizeof(T));
  BOOST_TEST(sums.bytes == static_cast<std::uint64_t>(shifts * elements) * sizeof(compute_t<T>));
  BOOST_TEST(pairs.calls == static_cast<std::uint64_t>(2 * shifts));
  BOOST_TEST(sums.calls == static_cast<std::uint64_t>(shifts));
}

// All parts but the last are computed while the next one is under way.
BOOST_AUTO_TEST_CASE(messages_travel_while_parts_are_computed) {
  const auto ranks = world();
  TrainerOptions options = ring_options(kinds[0]);
  place_on(context_alone(ranks), options);
  const auto ledger = Ledger::create();
  Trainer<Exec, float> trainer(model(kinds[0], 1), options, *ledger);
  trainer.prepare(Exec());
  int hidden = 0, waiting = 0;
  {
    const Timeline timeline;
    trainer.forward(Exec(), random_sequences(batch, long_sequence));
    hidden = Timeline::hidden;
    waiting = Timeline::waiting;
  }
  const auto layers = static_cast<int>(model(kinds[0], 1).num_hidden_layers);
  BOOST_TEST(hidden == layers * (ranks->size() - 1));
  BOOST_TEST(waiting == layers);
}

BOOST_AUTO_TEST_CASE(messages_go_through_the_host) {
  const auto ranks = world();
  const int n = ranks->size(), before = (ranks->rank() + n - 1) % n;
  if (n == 1) return;
  const auto ledger = Ledger::create();
  for (const bool staged : {false, true}) {
    Impl::RingMessages<Exec> ring(ranks, 5 * sizeof(double) + 3 * sizeof(float), *ledger, staged);
    BOOST_TEST((ledger->current(MemoryClass::communication) > 0) == staged);
    const auto a = on_device(std::vector<double>(5, ranks->rank())),
               a_in = on_device(std::vector<double>(5, -1));
    const auto b = on_device(std::vector<float>(3, float(10 + ranks->rank()))),
               b_in = on_device(std::vector<float>(3, -1));
    ring.begin(Exec(), {{"a", a.data(), a_in.data(), 5 * sizeof(double)},
                        {"b", b.data(), b_in.data(), 3 * sizeof(float)}});
    ring.finish(Exec());
    Exec().fence("received");
    BOOST_TEST((on_host(a_in) == std::vector<double>(5, before)));
    BOOST_TEST((on_host(b_in) == std::vector<float>(3, float(10 + before))));
  }
}

BOOST_AUTO_TEST_CASE(what_has_no_ring_is_refused) {
  LlamaConfig config = model(kinds[0], 1);
  config.sliding_window = 3;
  const auto make = [&](ContextExchange exchange) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    LlamaModel<Exec, float>(config, {1, 4},
                            {.context = std::make_shared<LoneCommunicator>(1, 3), .context_exchange = exchange},
                            *ledger);
  };
  BOOST_CHECK_NO_THROW(make(ContextExchange::all_gather));
  check_error<NotSupported>(
      [&] { make(ContextExchange::ring); },
      "kformer::LlamaModel: ranks divide the tokens (context), and a window lies across the parts "
      "of a ring; choose ContextExchange::all_gather");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
