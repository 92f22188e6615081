// SPDX-License-Identifier: MIT
#include "kformer/ops/adamw.hpp"

#include "ops/adamw_cases.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(adamw)

template <class T>
using Number = TestTensor<Exec, T>;

template <class T>
Number<T> number(double value) {
  return std::move(Number<T>({1}, Rows::packed).fill([&](std::size_t) { return static_cast<T>(value); }));
}

/// The states that weights of type T can have.
template <class T>
std::vector<States> states_of() {
  if (std::is_same_v<T, double>) return {States::plain};
  return {States::plain, States::coded};
}

struct Case {
  AdamWOptions options;
  double norm;  // NaN: none is given
};
const double none = std::numeric_limits<double>::quiet_NaN();
const std::vector<Case> cases{
    {{.learning_rate = 1e-2}, none},
    {{.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .step = 7, .gradient_scale = 0.37}, 3.0},
    {{.step = 100000, .gradient_scale = 1.0 / 1024, .max_norm = 1}, 700.0},
    {{.step = 3, .gradient_scale = 1.0 / 1024, .max_norm = 1.3}, 5000.0}};

template <class T, class Real>
ref::AdamWState<Real> stepped(const AdamWArrays<T>& a, const Case& c) {
  auto state = a.template read<Real>();
  const Real norm = static_cast<Real>(static_cast<compute_t<T>>(c.norm));
  ref::adamw(state, c.options, std::isnan(norm) ? nullptr : &norm);
  return state;
}

/// The textbook computation in the precision of T, with what is stored rounded to its storage.
template <class T>
ref::AdamWState<compute_t<T>> naive_step(const AdamWArrays<T>& a, const Case& c) {
  using C = compute_t<T>;
  auto state = stepped<T, C>(a, c);
  if (a.states == States::coded) {
    state.m = ref::decode<C, Impl::MapSign::with>(ref::encode<C, Impl::MapSign::with>(state.m));
    state.v = ref::decode<C, Impl::MapSign::without>(ref::encode<C, Impl::MapSign::without>(state.v));
  }
  return state;
}

/// One array of all parameters as a whole: the rule compares errors over an array, and those of a lone number
/// are chance.
template <class Real, class List, class Array>
HostTensor<Real> joined(const List& list, Array array) {
  HostTensor<Real> all({0});
  for (const auto& one : list) {
    const HostTensor<Real> part = array(one);
    all.values().insert(all.values().end(), part.values().begin(), part.values().end());
  }
  return all;
}

template <class S, class Real, class Naive>
void check_joined(const char* what, const HostTensor<Real>& out, const HostTensor<Real>& expected,
                  const HostTensor<Naive>& naive) {
  const Comparison c = compare<S>(out, expected, naive);
  BOOST_TEST(c.ok, what << ": " << c.report);
}

template <class T>
void check_steps(Masters masters) {
  using C = compute_t<T>;
  using R = oracle_t<T>;
  const auto m_of = [](const auto& state) { return state.m; };
  const auto v_of = [](const auto& state) { return state.v; };
  const auto weight_of = [](const auto& state) { return state.weight; };
  for (const States states : states_of<T>())
    for (const Case& c : cases) {
      AdamWModel<T> model(states, adamw_shapes, masters);
      std::vector<ref::AdamWState<R>> expected;
      std::vector<ref::AdamWState<C>> naive;
      for (const auto& a : model.arrays) {
        expected.push_back(stepped<T, R>(a, c));
        naive.push_back(naive_step<T>(a, c));
      }
      const auto weight = joined<R>(expected, weight_of);
      const auto naive_master = joined<C>(naive, weight_of);
      auto naive_weight = naive_master;
      for (C& w : naive_weight.values()) w = Impl::stored<T>(w);
      const auto norm = number<C>(c.norm);
      const Impl::AdamW problem{model.parameters, std::isnan(c.norm) ? TensorRef{} : norm.ref(), c.options};
      test_every_kernel(problem, model.outputs, [&](const std::string&) {
        const auto out = [&](auto read) { return joined<R>(model.arrays, read); };
        check_joined<C>("m", out([](const auto& a) { return a.template read_m<R>(); }),
                        joined<R>(expected, m_of), joined<C>(naive, m_of));
        check_joined<C>("v", out([](const auto& a) { return a.template read_v<R>(); }),
                        joined<R>(expected, v_of), joined<C>(naive, v_of));
        check_joined<T>("weight", out([](const auto& a) { return a.weight.template read<R>(); }), weight,
                        naive_weight);
        if (model.arrays.front().has_master)
          check_joined<C>("master", out([](const auto& a) { return a.master.template read<R>(); }), weight,
                          naive_master);
      });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_matches_the_oracle, T, Scalars) { check_steps<T>(Masters::with); }

using HalfScalars = std::tuple<bf16, f16>;
BOOST_AUTO_TEST_CASE_TEMPLATE(a_step_without_master_weights_matches_the_oracle, T, HalfScalars) {
  check_steps<T>(Masters::without);
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // After one step m̂ is the gradient and v̂ its square.
  ref::AdamWState<double> s{HostTensor<double>({1}, 2.0), HostTensor<double>({1}, -12.0),
                            HostTensor<double>({1}), HostTensor<double>({1}), 0.5};
  const double norm = 12;
  ref::adamw(s, {.learning_rate = 0.25, .eps = 1, .gradient_scale = 0.5, .max_norm = 3}, &norm);
  BOOST_TEST(s.m(0) == -0.3, boost::test_tools::tolerance(1e-15));
  BOOST_TEST(s.v(0) == 0.009, boost::test_tools::tolerance(1e-14));
  BOOST_TEST(s.weight(0) == 2 - 0.25 * (-3.0 / 4 + 1), boost::test_tools::tolerance(1e-14));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_16_bit_weight_is_the_rounding_of_its_master, T, HalfScalars) {
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
  using C = compute_t<T>;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const States states : states_of<T>())
    for (const double value : {infinity, none}) {
      AdamWModel<T> model(states);
      std::vector<std::vector<unsigned char>> before;
      for (const Output* output : model.outputs) before.push_back(output->bits());
      const auto norm = number<C>(value);
      for (const double max_norm : {0.0, 1.0})
        test_every_kernel(Impl::AdamW{model.parameters, norm.ref(), {.max_norm = max_norm}}, model.outputs,
                          [&](const std::string&) {
                            for (std::size_t i = 0; i < before.size(); ++i)
                              BOOST_TEST((model.outputs[i]->bits() == before[i]), "output " << i);
                          });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_norm_matches_the_oracle, T, Scalars) {
  using C = compute_t<T>;
  using R = oracle_t<T>;
  for (const double scale : {1.0, 1e20, 1e-20}) {
    AdamWModel<T> model(States::plain);
    std::vector<HostTensor<R>> gradients;
    std::vector<HostTensor<C>> plain;
    for (auto& a : model.arrays) {
      const auto values = a.gradient.template read<C>().values();
      a.gradient.fill([&](std::size_t i) { return values[i] * static_cast<C>(scale); });
      gradients.push_back(a.gradient.template read<R>());
      plain.push_back(a.gradient.template read<C>());
    }
    HostTensor<R> expected({1}, ref::gradient_norm(gradients));
    HostTensor<C> naive({1}, ref::gradient_norm(plain));
    auto norm = number<C>(none);
    test_every_kernel(Impl::GradientNorm{model.parameters, norm.ref()}, {&norm},
                      [&](const std::string&) { check_close("norm", norm, expected, naive); });
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_norm_of_nothing_is_zero_and_of_what_is_not_finite_neither, T, Scalars) {
  using C = compute_t<T>;
  auto norm = number<C>(none);
  test_every_kernel(Impl::GradientNorm{{}, norm.ref()}, {&norm},
                    [&](const std::string&) { BOOST_TEST(norm.template read<double>()(0) == 0); });
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double poison : {infinity, -infinity, none})
    for (const std::size_t where : {0, 40, 8208}) {
      AdamWModel<T> model(States::plain, {{3}, {8209}});
      model.arrays[1].gradient.fill([&](std::size_t i) { return static_cast<C>(i == where ? poison : 0.5); });
      test_every_kernel(Impl::GradientNorm{model.parameters, norm.ref()}, {&norm}, [&](const std::string&) {
        BOOST_TEST(!std::isfinite(norm.template read<double>()(0)));
      });
    }
}

// An instance with fewer threads, where the space has threads to share out.
BOOST_AUTO_TEST_CASE_TEMPLATE(bits_do_not_depend_on_the_number_of_threads, T, Scalars) {
  using C = compute_t<T>;
  if (Exec().concurrency() < 2) return;
  const auto halves = Kokkos::Experimental::partition_space(Exec(), 1, 1);
  for (const States states : states_of<T>()) {
    std::vector<std::vector<std::vector<unsigned char>>> bits;
    for (const Exec& exec : {Exec(), halves[0]}) {
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
