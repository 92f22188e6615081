// SPDX-License-Identifier: MIT
// The kernels of AdamW that step by 16 bytes, on emulated CUDA blocks, against the reference by the rule.
#include "ops/adamw/cuda/entries.hpp"
#include "ops/adamw_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(adamw_emulated)

constexpr auto step_kernel = Impl::cuda::AdamWEntry<Exec>::entry();
constexpr auto norm_kernel = Impl::cuda::GradientNormEntry<Exec>::entry();
AdamWKernels emulated() { return {{&step_kernel, 1}, {&norm_kernel, 1}, false}; }

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_matches_the_oracle, T, Scalars) {
  check_steps<T>(Masters::with, emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_without_master_weights_matches_the_oracle, T, Halves) {
  check_steps<T>(Masters::without, emulated());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_norm_that_is_not_finite_skips_the_whole_step, T, Scalars) {
  check_a_norm_that_is_not_finite_skips_the_whole_step<T>(emulated());
}

using GradientScalars = std::tuple<float, double>;
BOOST_AUTO_TEST_CASE_TEMPLATE(the_norm_matches_the_oracle, T, GradientScalars) {
  check_the_norm_matches_the_oracle<T>(emulated());
  check_the_norm_of_nothing_is_zero_and_of_what_is_not_finite_neither<T>(emulated());
}

// The arrays without their first element are not aligned to 16 bytes.
BOOST_AUTO_TEST_CASE_TEMPLATE(arrays_may_lie_anywhere, T, Scalars) {
  const auto shifted = [](TensorRef x) {
    if (!x.present()) return x;
    x.data = static_cast<std::byte*>(x.data) + size_of(x.dtype);
    --x.extent[0];
    return x;
  };
  AdamWModel<T> whole(States::plain, {{8500}}), part(States::plain, {{8500}});
  auto& p = part.parameters[0];
  for (TensorRef* x : {&p.weight, &p.gradient, &p.master, &p.m, &p.v}) *x = shifted(*x);
  for (const auto* model : {&whole, &part}) {
    const Impl::AdamW step{model->parameters, {}, {}};
    BOOST_TEST(step_kernel.reject(step).empty());
    step_kernel.run(Exec(), step, {});
  }
  const auto expected = whole.arrays[0].template read<double>(), got = part.arrays[0].template read<double>();
  for (std::size_t i = 1; i < 8500; ++i)
    if (got.weight.values()[i] != expected.weight.values()[i] || got.m.values()[i] != expected.m.values()[i] ||
        got.v.values()[i] != expected.v.values()[i])
      BOOST_ERROR("element " << i << " differs");
  BOOST_TEST(got.m.values()[0] != expected.m.values()[0]);  // not part of the step
}

BOOST_AUTO_TEST_CASE(states_in_8_bits_are_refused) {
  const AdamWModel<bf16> model(States::coded);
  BOOST_TEST(step_kernel.reject(Impl::AdamW{model.parameters, {}, {}}) == "it does not support 8-bit states");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
