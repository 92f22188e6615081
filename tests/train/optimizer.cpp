// SPDX-License-Identifier: MIT
#include "kformer/train/optimizer.hpp"

#include <cmath>

#include "ops/adamw_cases.hpp"
#include "support/errors.hpp"
#include "support/read_operand.hpp"

namespace kformer::Testing {
namespace {

/// A model of a matrix and a vector.
template <class T>
struct Model {
  using C = compute_t<T>;
  TestTensor<Exec, T> matrix{{20, 17}, Rows::packed}, vector{{300}, Rows::packed};
  TestTensor<Exec, C> d_matrix{{20, 17}, Rows::packed}, d_vector{{300}, Rows::packed};

  Model() {
    std::mt19937 generator(20261121);
    matrix.random(generator);
    vector.random(generator);
    new_gradients(generator);
  }
  void new_gradients(std::mt19937& generator) {
    d_matrix.random(generator, 100);
    d_vector.random(generator, 100);
  }
  std::vector<Parameter> parameters() const {
    return {{"matrix", matrix.ref(), d_matrix.ref()}, {"vector", vector.ref(), d_vector.ref()}};
  }
};

/// The arrays that a user of `adamw` would make by hand.
template <class T>
struct ByHand {
  using C = compute_t<T>;
  std::vector<TestTensor<Exec, C>> floats;
  std::vector<TestTensor<Exec, std::uint8_t>> codes;
  std::vector<AdamWParameter> parameters;

  ByHand(const Model<T>& model, const OptimizerOptions& options) {
    const auto zeros = [&](const std::vector<std::int64_t>& extents) {
      return floats.emplace_back(extents, Rows::packed).fill([](std::size_t) { return C(0); }).ref();
    };
    for (const Parameter& p : model.parameters()) {
      AdamWParameter& a = parameters.emplace_back();
      const std::vector<std::int64_t> extents(p.weight.extent.begin(), p.weight.extent.begin() + p.weight.rank);
      a.weight = p.weight;
      a.gradient = p.gradient;
      if (sizeof(T) == 2 && options.master) {
        const auto values = read_operand<double>(p.weight).values();
        a.master = floats.emplace_back(extents, Rows::packed)
                       .fill([&](std::size_t i) { return static_cast<C>(values[i]); })
                       .ref();
      }
      a.weight_decay = p.weight.rank == 2 ? options.weight_decay : 0;
      if (options.states == OptimizerStates::full) {
        a.m = zeros(extents);
        a.v = zeros(extents);
      } else {
        a.m = codes.emplace_back(extents, Rows::packed).ref();
        a.v = codes.emplace_back(extents, Rows::packed).ref();
        a.m_scale = zeros({(p.weight.size() + 255) / 256});
        a.v_scale = zeros({(p.weight.size() + 255) / 256});
      }
    }
  }
};

OptimizerOptions some_options() {
  return {.beta1 = 0.8,
          .beta2 = 0.95,
          .eps = 1e-6,
          .weight_decay = 0.25,
          .max_norm = 3,
          .loss_scaling = LossScaling{.initial = 8, .growth_interval = 2}};
}

std::vector<OptimizerOptions> all_options(bool coded) {
  std::vector<OptimizerOptions> all{{}, some_options()};
  if (coded) {
    all.push_back(some_options());
    all.back().states = OptimizerStates::eight_bit;
    all.back().master = false;
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(optimizer)

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_have_the_bits_of_adamw_called_by_hand, T, Scalars) {
  for (const OptimizerOptions& options : all_options(sizeof(T) < 8)) {
    Model<T> one, two;
    const auto ledger = Ledger::create();
    Optimizer<Exec, T> optimizer(one.parameters(), options, *ledger);
    optimizer.prepare(Exec());
    ByHand<T> by_hand(two, options);
    const TestTensor<Exec, compute_t<T>> norm({1});
    const Kokkos::View<std::byte*, Exec::memory_space> workspace(
        "workspace", gradient_norm_workspace_bytes(Exec(), by_hand.parameters));
    std::mt19937 first(1), second(1);
    double scale = options.loss_scaling ? 8 : 1;
    for (std::int64_t step = 1; step <= 3; ++step) {
      one.new_gradients(first);
      two.new_gradients(second);
      gradient_norm(Exec(), by_hand.parameters, norm.template view<1>(), workspace);
      adamw(Exec(), by_hand.parameters, norm.template view<1>(),
            {.learning_rate = 0.01 * static_cast<double>(step),
             .beta1 = options.beta1,
             .beta2 = options.beta2,
             .eps = options.eps,
             .step = step,
             .gradient_scale = 1 / scale,
             .max_norm = options.max_norm});
      Exec().fence("kformer::Testing::optimizer");
      BOOST_TEST(optimizer.scaler().scale() == scale);
      BOOST_TEST(optimizer.step(Exec(), 0.01 * static_cast<double>(step)));
      BOOST_TEST((one.matrix.bits() == two.matrix.bits()), "step " << step);
      BOOST_TEST((one.vector.bits() == two.vector.bits()), "step " << step);
      BOOST_TEST(optimizer.scaler().norm() == norm.template read<double>().values()[0] / scale);
      if (options.loss_scaling && step == 2) scale *= 2;
    }
    BOOST_TEST(optimizer.steps() == 3);
    BOOST_TEST(ledger->transfers().at(0).bytes == 3 * sizeof(compute_t<T>));  // norms
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_booked_as_optimizer, T, Scalars) {
  const std::size_t count = 20 * 17 + 300, size = sizeof(compute_t<T>);
  const auto bytes_of = [&](const OptimizerOptions& options) {
    const Model<T> model;
    const auto ledger = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count);
    {
      const Optimizer<Exec, T> optimizer(model.parameters(), options, *forecast);
    }
    const Optimizer<Exec, T> optimizer(model.parameters(), options, *ledger);
    BOOST_TEST(ledger->current(MemoryClass::optimizer) == ledger->current_total());
    BOOST_TEST(ledger->peak_total() == forecast->peak_total());
    return ledger->current_total();
  };
  const std::size_t arrays = sizeof(T) == 2 ? 3 : 2;
  // Norm, its workspace, and arrays padded to 64 bytes.
  constexpr std::size_t rest = 2048;
  const std::size_t full = bytes_of({});
  BOOST_TEST(full >= arrays * count * size);
  BOOST_TEST(full < arrays * count * size + rest);
  if (sizeof(T) == 8) return;
  const std::size_t bare = bytes_of({.master = false});
  BOOST_TEST(bare >= 2 * count * size);
  BOOST_TEST(bare < 2 * count * size + rest);
  const std::size_t coded = bytes_of({.states = OptimizerStates::eight_bit});
  BOOST_TEST(coded >= (arrays - 2) * count * size + 2 * count);
  BOOST_TEST(coded < (arrays - 2) * count * size + 2 * count + rest);
}

BOOST_AUTO_TEST_CASE(errors_come_from_the_constructor) {
  const Model<float> model;
  const auto ledger = Ledger::create();
  const auto make = [&](const std::vector<Parameter>& parameters, const OptimizerOptions& options) {
    return [=] { Optimizer<Exec, float>(parameters, options, *ledger); };
  };
  check_error<NotSupported>(
      make(model.parameters(), {.beta1 = 1}),
      "kformer::Optimizer: beta1 and beta2 must be at least 0 and less than 1, got 1 and 0.999");
  check_error<NotSupported>(
      make(model.parameters(), {.eps = -1}),
      "kformer::Optimizer: eps must be finite and at least 1.17549e-38, the smallest normal float, because it "
      "prevents 0 / 0; got -1");
  // Also if no parameter decays.
  check_error<NotSupported>(make({}, {.weight_decay = -0.5}),
                            "kformer::Optimizer: weight_decay must be finite and not negative, got -0.500000");
  check_error<NotSupported>(make(model.parameters(), {.states = static_cast<OptimizerStates>(7)}),
                            "kformer::Optimizer: states has the value 7, which its type does not name; choose "
                            "one of: full, int8");
  check_error<NotSupported>(make(model.parameters(), {.loss_scaling = LossScaling{.growth_factor = 0}}),
                            "kformer::DynamicLossScale: growth_factor must be at least 1, got 0");
  std::vector<Parameter> no_gradient = model.parameters();
  no_gradient[1].gradient = {};
  check_error<DimensionMismatch>(
      make(no_gradient, {}),
      "kformer::Optimizer: 'vector' has no gradient; construct the model with LayerMode::training");
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(a_step_needs_prepare) {
  const Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(), {}, *ledger);
  check_error<NotSupported>(
      [&] { BOOST_TEST(!optimizer.step(Exec(), 0.01)); },
      "kformer::Optimizer::step: the states are undefined; call prepare(exec) once, after the "
      "weights were written");
}

BOOST_AUTO_TEST_CASE(an_optimizer_that_was_moved_from_is_refused) {
  const Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> from(model.parameters(), {}, *ledger);
  from.prepare(Exec());
  Optimizer<Exec, float> to = moved_out_of(from);
  const auto refused = [](auto call, const std::string& function) {
    check_error<NotSupported>(call,
                              "kformer::Optimizer::" + function +
                                  ": the object was moved from and has no memory; use the one it was moved to");
  };
  refused([&] { from.prepare(Exec()); }, "prepare");
  refused([&] { static_cast<void>(from.step(Exec(), 0.1)); }, "step");
  refused([&] { static_cast<void>(from.measure(Exec())); }, "measure");
  BOOST_TEST(to.step(Exec(), 0.1));
}

BOOST_AUTO_TEST_CASE(states_that_are_only_counted_are_refused) {
  const Model<bf16> model;
  const auto counting = Ledger::create(Ledger::Mode::count), ledger = Ledger::create();
  const std::string lacks = " has no memory (null pointer, or a ledger that only counts); allocate it";
  Optimizer<Exec, bf16> planned(model.parameters(), {}, *counting);
  check_error<DimensionMismatch>([&] { planned.prepare(Exec()); },
                                 "kformer::Optimizer::prepare: the optimizer" + lacks);
  std::vector<Parameter> counted = model.parameters();
  counted[1].weight.data = nullptr;
  Optimizer<Exec, bf16> optimizer(counted, {}, *ledger);
  check_error<DimensionMismatch>([&] { optimizer.prepare(Exec()); },
                                 "kformer::Optimizer::prepare: vector" + lacks);
}

BOOST_AUTO_TEST_CASE(an_update_needs_the_norm_of_its_gradients) {
  Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(), {}, *ledger);
  optimizer.prepare(Exec());
  const auto update = [&] { static_cast<void>(optimizer.update(Exec(), 0.01)); };
  const std::string sentence =
      "kformer::Optimizer::update: the norm of these gradients is not known; call measure(exec) first, or step";
  check_error<NotSupported>(update, sentence);
  BOOST_TEST(std::isfinite(optimizer.measure(Exec())));
  update();
  check_error<NotSupported>(update, sentence);
  BOOST_TEST(std::isfinite(optimizer.measure(Exec())));
  optimizer.skip();
  check_error<NotSupported>(update, sentence);
  check_error<NotSupported>([&] { optimizer.skip(); },
                            "kformer::Optimizer::skip: there is no step to skip; call measure(exec) first");
}

// Its gradients are finite.
BOOST_AUTO_TEST_CASE(a_step_that_is_skipped_is_good_for_the_loss_scale) {
  Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(),
                                   {.loss_scaling = LossScaling{.initial = 8, .growth_interval = 2}}, *ledger);
  optimizer.prepare(Exec());
  const auto bits = model.matrix.bits();
  for (const double scale : {8, 16}) {
    BOOST_TEST(std::isfinite(optimizer.measure(Exec())));
    optimizer.skip();
    BOOST_TEST(optimizer.scaler().scale() == scale);
  }
  BOOST_TEST((model.matrix.bits() == bits));
  BOOST_TEST(optimizer.steps() == 0);
  BOOST_TEST(optimizer.skipped_steps() == 2);
}

BOOST_AUTO_TEST_CASE(all_counts_are_restored_and_prepare_begins_anew) {
  Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(),
                                   {.loss_scaling = LossScaling{.initial = 8, .growth_interval = 9}}, *ledger);
  optimizer.prepare(Exec());
  optimizer.restore({.steps = 3, .skipped = 2, .loss_scale = 32, .good_steps = 7});
  const OptimizerState state = optimizer.state();
  BOOST_TEST((state.steps == 3 && state.skipped == 2));
  BOOST_TEST((state.loss_scale == 32 && state.good_steps == 7));
  optimizer.prepare(Exec());
  BOOST_TEST((optimizer.steps() == 0 && optimizer.skipped_steps() == 0));
}

BOOST_AUTO_TEST_CASE(a_step_within_a_step_is_refused) {
  const Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(), {}, *ledger);
  optimizer.prepare(Exec());
  const double norm = optimizer.measure(Exec());
  check_error<NotSupported>([&] { static_cast<void>(optimizer.step(Exec(), 0.01)); },
                            "kformer::Optimizer::step: measure has begun a step; end it with update or skip");
  BOOST_TEST(optimizer.measure(Exec()) == norm);
  BOOST_TEST(optimizer.update(Exec(), 0.01));
  BOOST_TEST(optimizer.steps() == 1);
}

BOOST_AUTO_TEST_CASE(a_refused_update_leaves_the_step_open) {
  Model<float> model;
  const auto ledger = Ledger::create();
  Optimizer<Exec, float> optimizer(model.parameters(), {}, *ledger);
  optimizer.prepare(Exec());
  const auto bits = model.matrix.bits();
  BOOST_TEST(std::isfinite(optimizer.measure(Exec())));
  const std::string sentence = "learning_rate must be finite and not negative, got -0.01";
  check_error<NotSupported>([&] { static_cast<void>(optimizer.update(Exec(), -0.01)); },
                            "kformer::Optimizer::update: " + sentence);
  BOOST_TEST(optimizer.update(Exec(), 0.0));
  check_error<NotSupported>([&] { static_cast<void>(optimizer.step(Exec(), -0.01)); },
                            "kformer::Optimizer::step: " + sentence);
  BOOST_TEST((model.matrix.bits() == bits));
  BOOST_TEST(optimizer.steps() == 1);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
