// SPDX-License-Identifier: MIT
// The kernels of AdamW that step by 16 bytes, on emulated CUDA blocks, against the reference by the rule.
#include <limits>
#include <random>

#include "ops/adamw/cuda/entries.hpp"
#include "ops/adamw_state_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(adamw_emulated)

constexpr auto step_kernel = Impl::cuda::AdamWEntry<Exec>::entry();
constexpr auto norm_kernel = Impl::cuda::GradientNormEntry<Exec>::entry();
AdamWKernels emulated() { return {{&step_kernel, 1}, {&norm_kernel, 1}}; }

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

BOOST_AUTO_TEST_CASE(codes_are_those_of_the_reference) {
  check_codes_of_many_magnitudes(emulated());
  check_ties(emulated());
  check_blocks_of_zeros(emulated());
  check_nothing_behind_the_last_element_counts(emulated());
  check_numbers_that_are_not_finite(emulated());
}

bool same(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

/// Gradients of at most 12 bits, over many magnitudes; some blocks have only zeros, one is not finite. Scales
/// are powers of two.
template <class T>
void set_inputs(AdamWModel<T>& model, unsigned seed) {
  std::mt19937 generator(seed);
  const auto gradient = [&](std::size_t i) {
    if (i / adamw_block % 3 == 1) return 0.0f;
    if (i == 2 * adamw_block + 40)
      return seed % 2 == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return std::ldexp(static_cast<float>(static_cast<int>(generator() % 4095) - 2047), -int(generator() % 24));
  };
  for (auto& a : model.arrays) {
    a.gradient.fill(gradient);
    for (auto* scale : {&a.m_scale, &a.v_scale})
      scale->fill([&](std::size_t i) { return std::ldexp(1.0f, -static_cast<int>((i + seed) % 5)); });
  }
}

/// With these numbers every product is exact, so it does not matter whether a compiler fuses it with a sum: the
/// portable kernel has the same bits on every machine.
template <class T>
void check_bits_of_portable_kernel(Masters masters) {
  AdamWModel<T> tuned(States::coded, adamw_shapes, masters), portable(States::coded, adamw_shapes, masters);
  for (auto* model : {&tuned, &portable})
    for (AdamWParameter& p : model->parameters) p.weight_decay = p.weight_decay == 0 ? 0 : 0.5;
  const auto list = kernels<Impl::AdamW, Exec>();
  const auto kokkos = std::find_if(
      list.begin(), list.end(), [](const auto& kernel) { return std::string_view(kernel.name) == "kokkos"; });
  BOOST_REQUIRE((kokkos != list.end()));
  const AdamWOptions options{
      .learning_rate = 0.25, .beta1 = 0.5, .beta2 = 0.75, .eps = std::ldexp(1.0, -20), .step = 1000000};
  for (unsigned step = 0; step < 6; ++step) {
    for (auto* model : {&tuned, &portable}) set_inputs(*model, step);
    step_kernel.run(Exec(), Impl::AdamW{tuned.parameters, {}, options}, {});
    kokkos->run(Exec(), Impl::AdamW{portable.parameters, {}, options}, {});
    Exec().fence("kformer::Testing::adamw");
    for (std::size_t i = 0; i < tuned.arrays.size(); ++i) {
      const auto &got = tuned.arrays[i], &expected = portable.arrays[i];
      const auto values = [](const auto& x) { return x.template read<double>().values(); };
      BOOST_TEST_CONTEXT("step " << step << ", parameter " << i) {
        BOOST_TEST(same(values(got.weight), values(expected.weight)));
        BOOST_TEST(same(values(got.m_code), values(expected.m_code)));
        BOOST_TEST(same(values(got.v_code), values(expected.v_code)));
        BOOST_TEST(same(values(got.m_scale), values(expected.m_scale)));
        BOOST_TEST(same(values(got.v_scale), values(expected.v_scale)));
        if (got.has_master) BOOST_TEST(same(values(got.master), values(expected.master)));
      }
    }
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(steps_with_8_bits_have_the_bits_of_the_portable_kernel, T, UpToFloat) {
  check_bits_of_portable_kernel<T>(Masters::with);
}
BOOST_AUTO_TEST_CASE_TEMPLATE(the_same_without_master_weights, T, Halves) {
  check_bits_of_portable_kernel<T>(Masters::without);
}

/// A whole block of 8-bit states and a short one, of which array number `shifted` begins one number behind an aligned
/// place. Gives what a step writes.
constexpr int none_shifted = -1, arrays_of_a_step = 5;
template <class T>
std::vector<std::vector<double>> step_with_shifted_array(States states, int shifted) {
  constexpr std::size_t size = 300;
  const bool coded = states == States::coded;
  AdamWModel<T> source(states, {{size}}), wider(states, {{size + 1}});
  const auto& from = source.arrays[0];
  auto& to = wider.arrays[0];
  AdamWParameter p = source.parameters[0];
  const auto values = [](const auto& x) { return x.template read<double>().values(); };
  int number = 0;
  const auto skipped = [&] { return number++ == shifted ? std::size_t{1} : std::size_t{0}; };
  const auto place = [&](auto& tensor, const auto& numbers, TensorRef& ref) {
    const std::size_t begin = skipped();
    if (!ref.present()) return;
    tensor.fill([&, all = values(numbers)](std::size_t i) { return all[(i + size - begin) % size]; });
    ref.data = static_cast<std::byte*>(tensor.ref().data) + begin * size_of(ref.dtype);
  };
  place(to.weight, from.weight, p.weight);
  place(to.gradient, from.gradient, p.gradient);
  place(to.master, from.master, p.master);
  if (coded) {
    place(to.m_code, from.m_code, p.m);
    place(to.v_code, from.v_code, p.v);
  } else {
    place(to.m, from.m, p.m);
    place(to.v, from.v, p.v);
  }
  step_kernel.run(Exec(), Impl::AdamW{{&p, 1}, {}, {}}, {});
  Exec().fence("kformer::Testing::adamw");
  std::vector<std::vector<double>> written;
  if (coded) written = {values(from.m_scale), values(from.v_scale)};
  number = 0;
  const auto read = [&](const auto& tensor, const TensorRef& ref) {
    const std::size_t begin = skipped();
    if (!ref.present()) return;
    const auto all = values(tensor);
    written.emplace_back(all.begin() + begin, all.begin() + begin + size);
  };
  read(to.weight, p.weight);
  read(to.gradient, p.gradient);
  read(to.master, p.master);
  if (coded) {
    read(to.m_code, p.m);
    read(to.v_code, p.v);
  } else {
    read(to.m, p.m);
    read(to.v, p.v);
  }
  return written;
}

BOOST_AUTO_TEST_CASE_TEMPLATE(each_array_may_lie_anywhere, T, Scalars) {
  for (const States states : states_of<T>()) {
    const auto expected = step_with_shifted_array<T>(states, none_shifted);
    for (int shifted = 0; shifted < arrays_of_a_step; ++shifted)
      BOOST_TEST((step_with_shifted_array<T>(states, shifted) == expected), "array " << shifted);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
