// SPDX-License-Identifier: MIT
#include "kformer/memory/recompute_schedule.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "kformer/model/recompute_costs.hpp"
#include "model/model_cases.hpp"
#include "model/model_run.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

/// Models may offload, on hosts too, while it exists.
struct OffloadingAllowed {
  OffloadingAllowed() { Impl::hosts_may_offload = true; }
  ~OffloadingAllowed() { Impl::hosts_may_offload = false; }
};

/// Every policy of a model, and mixtures.
std::vector<std::pair<std::string, RecomputeSchedule>> schedules(std::int64_t layers) {
  std::vector<std::pair<std::string, RecomputeSchedule>> all;
  for (const Recompute kind : {Recompute::none, Recompute::pointwise, Recompute::layer, Recompute::offload})
    all.emplace_back(name_of(kind), RecomputeSchedule::uniform(kind, layers));
  for (std::int64_t slots = 1; slots <= layers; ++slots)
    all.emplace_back("nested, " + std::to_string(slots),
                     RecomputeSchedule::uniform(Recompute::nested, layers, slots));
  RecomputeSchedule mixed{.nested_layers = layers - 1, .nested_slots = 1, .kinds = {Recompute::none}};
  if (layers == 1) mixed.nested_slots = 0;
  all.emplace_back("nested, then none", mixed);
  if (layers > 2) {
    mixed = {.nested_layers = 0, .nested_slots = 0, .kinds = {}};
    constexpr std::array turns{Recompute::layer, Recompute::none, Recompute::pointwise};
    for (std::size_t l = 0; l < static_cast<std::size_t>(layers); ++l) mixed.kinds.push_back(turns[l % 3]);
    all.emplace_back("layer, none, pointwise", mixed);
    mixed = {.nested_layers = 1, .nested_slots = 1, .kinds = {}};
    constexpr std::array offloading{Recompute::offload, Recompute::offload, Recompute::pointwise};
    for (std::size_t l = 1; l < static_cast<std::size_t>(layers); ++l) mixed.kinds.push_back(offloading[l % 3]);
    all.emplace_back("nested, then offload and pointwise", mixed);
  }
  return all;
}

/// Every schedule there is: runs, slots, and policies of the layers behind them in every order.
template <class Function>
void for_each_schedule(std::int64_t layers, bool offload, const Function& function) {
  constexpr std::array kinds{Recompute::layer, Recompute::none, Recompute::pointwise, Recompute::offload};
  const std::size_t policies = offload ? 4 : 3;
  for (std::int64_t nested = 0; nested <= layers; ++nested) {
    RecomputeSchedule schedule{.nested_layers = nested, .nested_slots = 0, .kinds = {}};
    schedule.kinds.resize(static_cast<std::size_t>(layers - nested));
    std::size_t assignments = 1;
    for (std::int64_t l = nested; l < layers; ++l) assignments *= policies;
    for (std::size_t assignment = 0; assignment < assignments; ++assignment) {
      std::size_t rest = assignment;
      for (Recompute& kind : schedule.kinds) {
        kind = kinds[rest % policies];
        rest /= policies;
      }
      for (std::int64_t slots = std::min<std::int64_t>(nested, 1); slots <= nested; ++slots) {
        schedule.nested_slots = slots;
        function(schedule);
      }
    }
  }
}

template <class T>
std::map<std::string, std::vector<double>> gradients_of(ModelUnderTest<T>& run) {
  std::map<std::string, std::vector<double>> all;
  for (const Parameter& p : run.model().parameters()) all[p.name] = run.template gradient<double>(p).values();
  return all;
}

/// Equal, NaN included.
bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recompute)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_schedule_gives_the_same_bits, T, Scalars) {
  const OffloadingAllowed allowed;
  for (ModelCase c : model_cases())
    for (const AttentionAlgorithm algorithm : {AttentionAlgorithm::flash, AttentionAlgorithm::standard}) {
      if (c.config.num_hidden_layers == 3) c.config.num_hidden_layers = 5;
      const ModelInputs inputs = ModelInputs::random(c.config, c.shape);
      std::map<std::string, std::vector<double>> expected;
      for (const auto& [name, schedule] : schedules(c.config.num_hidden_layers))
        BOOST_TEST_CONTEXT(c.name << ", " << name_of(algorithm) << ", " << name) {
          ModelUnderTest<T> run(inputs, LayerMode::training, algorithm, schedule);
          // Twice, because a second step must not find what the first left behind.
          for (int step = 0; step < 2; ++step) {
            run.model().zero_gradients(Exec());
            run.forward();
            run.backward();
          }
          const auto gradients = gradients_of(run);
          if (expected.empty()) expected = gradients;
          for (const auto& [parameter, values] : gradients)
            BOOST_TEST(same_bits(values, expected.at(parameter)), parameter);
          BOOST_TEST(std::ranges::any_of(gradients.at("model.layers.0.mlp.down_proj.weight"),
                                         [](double d) { return d != 0; }));
        }
    }
}

/// More tokens than a layer has gradients for each number that it keeps of a token: in all storage types the gradients
/// fit into the layer behind.
constexpr LayerShape many_tokens{2, 50};

BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_over_dead_activations_have_the_same_bits, T, Scalars) {
  const OffloadingAllowed allowed;
  for (const bool tied : {false, true}) {
    LlamaConfig config = small_model();
    config.num_hidden_layers = 5;
    config.tie_word_embeddings = tied;
    const ModelInputs inputs = ModelInputs::random(config, many_tokens);
    for (const auto& [name, schedule] : schedules(config.num_hidden_layers)) BOOST_TEST_CONTEXT(name) {
        ModelUnderTest<T> alone(inputs, LayerMode::training, AttentionAlgorithm::flash, schedule);
        ModelUnderTest<T> run(inputs, LayerMode::training, AttentionAlgorithm::flash, schedule, {}, false);
        // Twice, because a second step must not find what the first left behind.
        for (int step = 0; step < 2; ++step)
          for (auto* model : {&alone, &run}) {
            model->model().zero_gradients(Exec());
            model->forward();
            model->backward();
          }
        const auto expected = gradients_of(alone);
        for (const auto& [parameter, values] : gradients_of(run))
          BOOST_TEST(same_bits(values, expected.at(parameter)), parameter);
        // Each layer that keeps arrays holds the gradients of the one before it.
        const auto kept = [](Recompute kind) {
          return kind == Recompute::none || kind == Recompute::pointwise;
        };
        const auto first = schedule.nested_layers == 0 && kept(schedule.kinds.front()) ? 1 : 0;
        const auto hold = std::ranges::count_if(schedule.kinds, kept) - first;
        const auto ledger = Ledger::create(Ledger::Mode::count);
        const DecoderLayer<Exec, T> layer(config, many_tokens, {}, *ledger);
        BOOST_TEST(alone.ledger().peak(MemoryClass::gradients) - run.ledger().peak(MemoryClass::gradients) ==
                   static_cast<std::size_t>(hold) * ledger->peak(MemoryClass::gradients));
        BOOST_TEST(alone.ledger().peak(MemoryClass::activations) ==
                   run.ledger().peak(MemoryClass::activations));
      }
  }
}

// Added to zeros, written over what lies there, or added to other gradients, they are the same numbers.
BOOST_AUTO_TEST_CASE_TEMPLATE(micro_batches_add_up_to_the_same_bits, T, Scalars) {
  using C = compute_t<T>;
  const OffloadingAllowed allowed;
  const LlamaConfig config = small_model();
  std::vector<ModelInputs> micro_batches;
  for (const unsigned seed : {1u, 2u, 3u})
    micro_batches.push_back(ModelInputs::random(config, many_tokens, seed));
  const auto add = [&](ModelUnderTest<T>& run, std::size_t micro_batch) {
    run.write_tokens(micro_batches[micro_batch]);
    run.forward();
    run.backward();
  };
  std::vector<std::map<std::string, std::vector<double>>> sums(micro_batches.size()),
      added(micro_batches.size());
  for (const auto& [name, schedule] : schedules(config.num_hidden_layers)) BOOST_TEST_CONTEXT(name) {
      const auto make = [&](bool accumulate) {
        return ModelUnderTest<T>(micro_batches[0], LayerMode::training, AttentionAlgorithm::flash, schedule, {},
                                 accumulate);
      };
      auto overwrites = make(false), adds = make(true);
      for (std::size_t last = 0; last < micro_batches.size(); ++last) {
        add(overwrites, last);
        auto alone = gradients_of(overwrites);
        if (last > 0)
          for (auto& [parameter, values] : alone)
            for (std::size_t i = 0; i < values.size(); ++i)
              values[i] =
                  static_cast<C>(static_cast<C>(sums[last - 1].at(parameter)[i]) + static_cast<C>(values[i]));
        if (sums[last].empty()) sums[last] = alone;
        adds.model().zero_gradients(Exec());
        for (std::size_t i = 0; i <= last; ++i) add(adds, i);
        const auto sum = gradients_of(adds);
        if (added[last].empty()) added[last] = sum;
        for (const auto& [parameter, values] : sum) BOOST_TEST_CONTEXT(last + 1 << ", " << parameter) {
            BOOST_TEST(same_bits(alone.at(parameter), sums[last].at(parameter)));
            BOOST_TEST(same_bits(values, added[last].at(parameter)));
            // Rows of the embedding are added one by one, also within a micro-batch.
            if (last == 0 || parameter != "model.embed_tokens.weight")
              BOOST_TEST(same_bits(values, sums[last].at(parameter)));
          }
      }
    }
}

// Between forward and backward of the layers comes the loss.
BOOST_AUTO_TEST_CASE(logits_and_the_scratch_of_layers_are_one_memory) {
  const auto workspace = [](std::int64_t vocabulary) {
    LlamaConfig config = small_model();
    config.vocab_size = vocabulary;
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const LlamaModel<Exec, float> model(config, many_tokens, {}, *ledger);
    return ledger->peak(MemoryClass::workspace);
  };
  BOOST_TEST(workspace(75) == workspace(10));
  const std::size_t more = 2u * 50u * 1000u * sizeof(float);
  BOOST_TEST(workspace(2000) - workspace(1000) == more);
  BOOST_TEST(workspace(1000) - workspace(10) < more);
}

BOOST_AUTO_TEST_CASE(backward_uses_the_hidden_states_up_under_every_schedule) {
  const OffloadingAllowed allowed;
  const ModelInputs inputs = ModelInputs::random(small_model(), {1, 5});
  const TestTensor<Exec, std::int32_t> targets({5});
  const TestTensor<Exec, float> loss({5}), logits({5, small_model().vocab_size});
  for (const auto& [name, schedule] : schedules(small_model().num_hidden_layers)) BOOST_TEST_CONTEXT(name) {
      ModelUnderTest<float> run(inputs, LayerMode::training, AttentionAlgorithm::flash, schedule);
      run.forward();
      run.backward();
      const std::string none = ": there are no hidden states; call forward(exec, ids) first";
      check_error<NotSupported>([&] { run.model().loss(Exec(), targets.view<1>(), loss.view<1>()); },
                                "kformer::LlamaModel::loss" + none);
      check_error<NotSupported>([&] { run.model().logits(Exec(), logits.view<2>()); },
                                "kformer::LlamaModel::logits" + none);
      BOOST_CHECK_NO_THROW(run.forward());
    }
}

BOOST_AUTO_TEST_CASE(fewer_bytes_for_each_policy) {
  LlamaConfig config = small_model();
  config.num_hidden_layers = 9;
  const auto bytes = [&](const RecomputeSchedule& schedule) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const LlamaModel<Exec, float> model(config, {2, 64}, {}, *ledger, schedule);
    return ledger->peak(MemoryClass::activations);
  };
  const auto uniform = [&](Recompute kind, std::int64_t slots = 0) {
    return bytes(RecomputeSchedule::uniform(kind, config.num_hidden_layers, slots));
  };
  BOOST_TEST(uniform(Recompute::pointwise) < uniform(Recompute::none));
  BOOST_TEST(uniform(Recompute::layer) < uniform(Recompute::pointwise));
  BOOST_TEST(uniform(Recompute::nested) < uniform(Recompute::layer));
  BOOST_TEST(uniform(Recompute::nested, 1) < uniform(Recompute::nested));
  // One input less is one array of rows × hidden less.
  BOOST_TEST(uniform(Recompute::nested, 3) - uniform(Recompute::nested, 2) ==
             2u * 64u * static_cast<std::size_t>(config.hidden_size) * sizeof(float));
}

BOOST_AUTO_TEST_CASE(forecast_and_ledger_agree) {
  const OffloadingAllowed allowed;
  for (const ModelCase& c : model_cases())
    for (const auto& [name, schedule] : schedules(c.config.num_hidden_layers))
      for (const bool accumulate : {true, false}) {
        const LayerOptions options{.accumulate = accumulate};
        const auto ledger = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count);
        const LlamaModel<Exec, bf16> counted(c.config, many_tokens, options, *forecast, schedule);
        const LlamaModel<Exec, bf16> model(c.config, many_tokens, options, *ledger, schedule);
        BOOST_TEST(forecast->peak_total() == ledger->peak_total(), c.name << ", " << name);
      }
}

// Documents packed into one row give what each gives alone.
BOOST_AUTO_TEST_CASE_TEMPLATE(packed_documents_do_not_see_each_other, T, Scalars) {
  const std::vector<std::int64_t> lengths{9, 1, 14, 8};
  const LayerShape shape{2, 16};
  for (const ModelCase& c : model_cases())
    for (const unsigned seed : {1u, 2u}) BOOST_TEST_CONTEXT(c.name) {
        const ModelInputs inputs = ModelInputs::random(c.config, shape, seed).template rounded<T>();
        ModelUnderTest<T> run(inputs, LayerMode::training, AttentionAlgorithm::flash,
                              RecomputeSchedule::uniform(Recompute::layer, c.config.num_hidden_layers),
                              lengths);
        run.forward();
        run.backward();
        const auto expected = documents_reference<naive_t<T>, T>(inputs, lengths);
        check_close("logits", run.logits(), expected.logits);
        for (const Parameter& p : run.model().parameters())
          check_close<compute_t<T>>(p.name, run.template gradient<oracle_t<T>>(p),
                                    expected.gradients.at(p.name));
      }
}

// A plan says what the model books.
BOOST_AUTO_TEST_CASE_TEMPLATE(plans_and_models_agree, T, Scalars) {
  const MachineRates rates{.flops = 1e12, .bytes = 1e10};
  for (const LayerShape shape : {LayerShape{2, 3}, many_tokens})
    for (const bool accumulate : {true, false})
      for (const std::int64_t layers : {1, 2, 6}) {
        LlamaConfig config = small_model();
        config.num_hidden_layers = layers;
        const LayerOptions options{.accumulate = accumulate};
        const auto front = recompute_front(layers, recompute_costs<Exec, T>(config, shape, options, rates));
        const auto booked = [&](const RecomputeSchedule& schedule) {
          const auto ledger = Ledger::create(Ledger::Mode::count);
          const LlamaModel<Exec, T> model(config, shape, options, *ledger, schedule);
          return ledger->peak(MemoryClass::activations) + ledger->peak(MemoryClass::gradients);
        };
        const std::size_t others = booked(front.front().schedule) - front.front().bytes;
        for (const RecomputePlan& plan : front) BOOST_TEST(booked(plan.schedule) - plan.bytes == others);
        BOOST_TEST(front.back().seconds == 0);
        if (layers == 6) BOOST_TEST(front.size() > 5u);
      }
}

/// Budgets in equal steps from the fewest bytes that a model can train in to those of its fastest schedule. Of all
/// schedules that fit into one, by the bytes of whole models, none is faster than the plan.
template <class T>
void check_budgets(const LlamaConfig& config, bool accumulate, std::size_t budgets) {
  const MachineRates rates{.flops = 1e10, .bytes = 1e12, .transfers = 1e9};
  const LayerOptions options{.accumulate = accumulate};
  const auto total = [&](const RecomputeSchedule& schedule) {
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const LlamaModel<Exec, T> model(config, many_tokens, options, *ledger, schedule);
    return ledger->peak_in(Exec::memory_space::name());
  };
  const RecomputeCosts costs = recompute_costs<Exec, T>(config, many_tokens, options, rates);
  const auto front = recompute_front(config.num_hidden_layers, costs);
  const std::size_t others = total(front.front().schedule) - front.front().bytes;
  std::map<std::size_t, double> fastest;  // by bytes
  for_each_schedule(config.num_hidden_layers, costs.offload, [&](const RecomputeSchedule& schedule) {
    const double seconds = recompute_seconds(schedule, costs);
    const auto [place, is_new] = fastest.emplace(total(schedule), seconds);
    if (!is_new) place->second = std::min(place->second, seconds);
  });
  const std::size_t least = fastest.begin()->first, most = fastest.rbegin()->first;
  BOOST_CHECK_THROW(best_plan(front, least - others - 1), OutOfMemory);
  std::map<const RecomputePlan*, std::size_t> totals;
  auto next = fastest.begin();
  double best = next->second, seconds_before = best;
  std::size_t wrong = 0, bytes_before = 0;
  for (std::size_t i = 0; i <= budgets; ++i) {
    const std::size_t budget = least + (most - least) * i / budgets;
    for (; next != fastest.end() && next->first <= budget; ++next) best = std::min(best, next->second);
    const RecomputePlan& plan = best_plan(front, budget - others);
    if (!totals.contains(&plan)) totals[&plan] = total(plan.schedule);
    const std::size_t bytes = totals[&plan];
    wrong += bytes > budget || bytes < bytes_before || plan.seconds != best || plan.seconds > seconds_before;
    bytes_before = bytes;
    seconds_before = plan.seconds;
  }
  BOOST_TEST(wrong == 0u);
  BOOST_TEST(totals.size() > (config.num_hidden_layers > 1 ? 2u : 0u));
  BOOST_TEST(best == 0);
}

// 10,000 budgets for each storage type.
BOOST_AUTO_TEST_CASE_TEMPLATE(plans_are_the_fastest_of_all_schedules_within_a_budget, T, Scalars) {
  const auto cases = model_cases();
  const std::size_t budgets = 10000 / (2 * cases.size());
  for (const ModelCase& c : cases)
    for (const bool accumulate : {true, false})
      BOOST_TEST_CONTEXT(c.name << (accumulate ? ", accumulate" : "")) {
        LlamaConfig config = c.config;
        if (config.num_hidden_layers > 1) config.num_hidden_layers = accumulate ? 4 : 5;
        check_budgets<T>(config, accumulate, budgets);
      }
}

// A copy takes 1 s. What work it runs beside takes less, as long, or longer.
BOOST_AUTO_TEST_CASE(offloading_costs_the_time_that_no_work_hides) {
  const MachineRates rates{.transfers = 1000};
  for (const auto& [forward, backward, seconds] :
       {std::array{0.25, 0.5, 1.0}, {0.5, 0.5, 0.5}, {0.75, 1.5, 0.25}, {1.0, 2.0, 0.0}, {3.0, 6.0, 0.0}})
    BOOST_TEST(offload_seconds(1000, forward, backward, rates) == seconds);
  BOOST_TEST(offload_seconds(1000, 0, 0, {}) == 0);
  const LlamaConfig config = small_model();
  const auto costs = [&](MachineRates of) { return recompute_costs<Exec, float>(config, many_tokens, {}, of); };
  const double forward = layer_flops(config, many_tokens, false),
               backward = layer_flops(config, many_tokens, true);
  const auto bytes = static_cast<double>(costs({.flops = 1, .bytes = 1}).input_bytes);
  // Both copies take as long as four forwards; backward takes between two and two and a half.
  const double seconds = costs({.flops = forward, .bytes = 1, .transfers = bytes / 4}).offload_seconds;
  BOOST_TEST(std::abs(seconds - (4 - 1) - (4 - 1 - backward / forward)) < 1e-12);
  BOOST_TEST(costs({.flops = forward, .bytes = 1}).offload_seconds == 0);
}

BOOST_AUTO_TEST_CASE(errors) {
  const auto ledger = Ledger::create();
  const auto make = [&](const LayerOptions& options, const RecomputeSchedule& schedule) {
    return [&ledger, options, schedule] {
      const LlamaModel<Exec, float> model(small_model(), {1, 3}, options, *ledger, schedule);
    };
  };
  check_error<DimensionMismatch>(make({}, RecomputeSchedule::uniform(Recompute::layer, 2)),
                                 "kformer::LlamaModel: the recomputation schedule is for 2 layers, expected 3 "
                                 "(num_hidden_layers)");
  const std::string expected =
      " slots for their inputs; expected at least one slot for nested layers, else 0 and 0";
  check_error<DimensionMismatch>(
      make({}, {.nested_layers = -1, .nested_slots = 1, .kinds = std::vector(4, Recompute::layer)}),
      "kformer::LlamaModel: the recomputation schedule has -1 nested layers and 1" + expected);
  check_error<DimensionMismatch>(
      make({}, {.nested_layers = 3, .nested_slots = 0, .kinds = {}}),
      "kformer::LlamaModel: the recomputation schedule has 3 nested layers and 0" + expected);
  check_error<DimensionMismatch>([&] { LlamaModel<Exec, float>(small_model(), {1, -3}, {}, *ledger); },
                                 "kformer::LlamaModel: seq_len is -3; it must not be negative");
  check_error<NotSupported>(
      make({}, {.nested_layers = 0, .nested_slots = 0, .kinds = std::vector(3, Recompute::nested)}),
      "kformer::LlamaModel: a layer of a recomputation schedule keeps none, pointwise, "
      "layer or offload, not nested");
  check_error<NotSupported>(
      make({.attention = AttentionAlgorithm::standard, .packed = true},
           RecomputeSchedule::uniform(Recompute::layer, 3)),
      "kformer::LlamaModel: standard attention does not separate packed sequences; choose "
      "AttentionAlgorithm::flash");
  const std::string unnamed = " has the value 99, which its type does not name; choose one of: ";
  check_error<NotSupported>(
      make({.compute = static_cast<Precision>(99)}, RecomputeSchedule::uniform(Recompute::layer, 3)),
      "kformer::LlamaModel: compute" + unnamed + "storage, full");
  check_error<NotSupported>(
      [] { RecomputeSchedule::uniform(static_cast<Recompute>(99), 3); },
      "kformer::RecomputeSchedule::uniform: kind" + unnamed + "none, pointwise, layer, nested, offload, auto");
  LlamaConfig no_base = small_model();
  no_base.rope.theta = 0;
  check_error<NotSupported>([&] { LlamaModel<Exec, float>(no_base, {1, 3}, {}, *ledger); },
                            "kformer::LlamaModel: theta must be positive, got 0.000000");
  if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible)
    check_error<NotSupported>(make({}, RecomputeSchedule::uniform(Recompute::offload, 3)),
                              std::string("kformer::LlamaModel: recompute = offload moves inputs of layers to "
                                          "host memory, but ") +
                                  Exec::name() + " computes there already; choose layer or nested");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
