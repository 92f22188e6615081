// SPDX-License-Identifier: MIT
#include "kformer/ops/adamw.hpp"

#include "ops/adamw_cases.hpp"
#include "support/draws.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(adamw)

AdamWKernels every_kernel() { return {kernels<Impl::AdamW, Exec>(), kernels<Impl::GradientNorm, Exec>()}; }

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_matches_the_oracle, T, Scalars) {
  check_steps<T>(Masters::with, every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_without_master_weights_matches_the_oracle, T, Halves) {
  check_steps<T>(Masters::without, every_kernel());
}

// Thousands of elements each: 8-bit states are judged by one sample of errors.
BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    std::vector<std::vector<std::int64_t>> shapes{{draw.any(1, 70), draw.any(1, 120)}, {draw.any(4000, 9000)}};
    for (std::int64_t more = draw.any(0, 6); more > 0; --more) shapes.push_back({draw.any(1, 700)});
    AdamWCase c = draw.one_of(adamw_cases);
    c.options.learning_rate *= std::exp2(static_cast<double>(draw.any(-6, 3)));
    c.options.step = draw.any(1, draw.one_in(2) ? 20 : 100000);
    check_step(AdamWModel<T>(draw.one_of(states_of<T>()), shapes,
                             draw.one_of(std::array{Masters::with, Masters::without}), draw.seed()),
               c, every_kernel());
  });
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // After one step m̂ is the gradient and v̂ its square.
  ref::AdamWState<double> s{HostTensor<double>({1}, 2.0), HostTensor<double>({1}, -12.0),
                            HostTensor<double>({1}), HostTensor<double>({1}), 0.5};
  const double norm = 12;
  ref::adamw(s, {.learning_rate = 0.25, .eps = 1, .gradient_scale = 0.5, .max_norm = 3}, &norm);
  const double g = -6 * (3 / (6 + 1e-6));  // as clip_grad_norm_ of PyTorch
  BOOST_TEST(s.m(0) == 0.1 * g, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(s.v(0) == 0.001 * g * g, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.weight(0) == 2 - 0.25 * (g / (1 - g) + 1), boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_16_bit_weight_is_the_rounding_of_its_master, T, Halves) {
  for (const States states : states_of<T>()) {
    AdamWModel<T> model(states);
    test_every_kernel(Impl::AdamW{model.parameters, {}, {}}, model.outputs, [&](const std::string&) {
      for (const auto& a : model.arrays) {
        auto rounded = a.master.template read<float>().values();
        for (float& w : rounded) w = Impl::stored<T>(w);
        BOOST_TEST(a.weight.template read<float>().values() == rounded);
      }
    });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_norm_that_is_not_finite_skips_the_whole_step, T, Scalars) {
  check_a_norm_that_is_not_finite_skips_the_whole_step<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_norm_matches_the_oracle, T, Scalars) {
  check_the_norm_matches_the_oracle<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_norm_of_nothing_is_zero_and_of_what_is_not_finite_neither, T, Scalars) {
  check_the_norm_of_nothing_is_zero_and_of_what_is_not_finite_neither<T>(every_kernel());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(bits_do_not_depend_on_the_number_of_threads, T, Scalars) {
  using C = compute_t<T>;
  for (const States states : states_of<T>()) {
    std::vector<std::vector<std::vector<unsigned char>>> bits;
    for (const Exec& exec : {Exec(), one_thread()}) {
      AdamWModel<T> model(states);
      auto norm = number<C>(none);
      const Kokkos::View<std::byte*, Exec::memory_space> workspace(
          "kformer::Testing::workspace", gradient_norm_workspace_bytes(exec, model.parameters));
      gradient_norm(exec, model.parameters, norm.template view<1>(), workspace);
      kformer::adamw(exec, model.parameters, norm.template view<1>(), {.max_norm = 1});
      exec.fence("kformer::Testing::adamw");
      bits.push_back({norm.bits()});
      for (const Output* output : model.outputs) bits.back().push_back(output->bits());
    }
    BOOST_TEST((bits[0] == bits[1]));
  }
}

BOOST_AUTO_TEST_CASE(storage_types_may_differ_and_launches_are_few) {
  AdamWModel<float> floats(States::coded);
  AdamWModel<bf16> halves(States::plain);
  AdamWModel<float> alone(States::coded);
  auto parameters = floats.parameters;
  parameters.insert(parameters.begin() + 3, halves.parameters.begin(), halves.parameters.end());
  {
    const ToolsRecorder recorder;
    kformer::adamw(Exec(), parameters);
    Exec().fence("kformer::Testing::adamw");
    BOOST_TEST(recorder.kernels().size() == 4u);  // 35 parameters of each kind that are not empty, 32 a launch
  }
  kformer::adamw(Exec(), alone.parameters);
  Exec().fence("kformer::Testing::adamw");
  for (std::size_t i = 0; i < alone.outputs.size(); ++i)
    BOOST_TEST((floats.outputs[i]->bits() == alone.outputs[i]->bits()));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
