// SPDX-License-Identifier: MIT
#pragma once

#include <random>
#include <vector>

#include "ops/adamw/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Parameters of AdamW for tests: arrays with guard zones, and the same in plain numbers.

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

/// How `m` and `v` are stored.
enum class States { plain, coded };

/// Whether 16-bit weights have master weights.
enum class Masters { with, without };

/// One parameter. Only the arrays it needs are there.
template <class T>
struct AdamWArrays {
  using C = compute_t<T>;
  TestTensor<Exec, T> weight;
  TestTensor<Exec, C> gradient, master, m, v;
  TestTensor<Exec, std::uint8_t> m_code, v_code;
  TestTensor<Exec, float> m_scale, v_scale;
  States states;
  double weight_decay;

  bool has_master;

  AdamWArrays(const std::vector<std::int64_t>& extents, States stored, Masters masters, double decay,
              std::mt19937& generator)
      : weight(extents, Rows::packed),
        gradient(extents, Rows::packed),
        states(stored),
        weight_decay(decay),
        has_master(sizeof(T) == 2 && masters == Masters::with) {
    gradient.random(generator);
    if (has_master)  // the 16-bit weight is only an output, and stays NaN
      master = TestTensor<Exec, C>(extents, Rows::packed).random(generator);
    else
      weight.random(generator);
    set_states(extents, generator);
  }

  AdamWParameter parameter() const {
    const bool coded = states == States::coded;
    return {weight.ref(),
            gradient.ref(),
            master.ref(),
            coded ? m_code.ref() : m.ref(),
            coded ? v_code.ref() : v.ref(),
            m_scale.ref(),
            v_scale.ref(),
            weight_decay};
  }

  std::vector<Output*> outputs() {
    std::vector<Output*> all{&weight};
    if (has_master) all.push_back(&master);
    if (states == States::plain)
      all.insert(all.end(), {&m, &v});
    else
      all.insert(all.end(), {&m_code, &v_code, &m_scale, &v_scale});
    return all;
  }

  template <class Real>
  HostTensor<Real> read_m() const {
    if (states == States::plain) return m.template read<Real>();
    return ref::decode<Real, kformer::Impl::MapSign::with>(
        {m_code.template read<Real>(), m_scale.template read<Real>()});
  }
  template <class Real>
  HostTensor<Real> read_v() const {
    if (states == States::plain) return v.template read<Real>();
    return ref::decode<Real, kformer::Impl::MapSign::without>(
        {v_code.template read<Real>(), v_scale.template read<Real>()});
  }
  template <class Real>
  kformer::Impl::reference::AdamWState<Real> read() const {
    return {has_master ? master.template read<Real>() : weight.template read<Real>(),
            gradient.template read<Real>(), read_m<Real>(), read_v<Real>(), weight_decay};
  }

 private:
  /// As in training: a mean square is at least the square of the mean.
  void set_states(const std::vector<std::int64_t>& extents, std::mt19937& generator) {
    using kformer::Impl::MapSign;
    HostTensor<double> mean({gradient.ref().size()}), square = mean;
    std::normal_distribution<double> normal(0, 0.3);
    std::uniform_real_distribution<double> uniform(0, 1);
    for (std::size_t i = 0; i < mean.values().size(); ++i) {
      mean.values()[i] = normal(generator);
      square.values()[i] = mean.values()[i] * mean.values()[i] + uniform(generator);
    }
    const auto filled = [](auto tensor, const HostTensor<double>& numbers) {
      tensor.fill([&](std::size_t i) { return numbers.values()[i]; });
      return tensor;
    };
    if (states == States::plain) {
      m = filled(TestTensor<Exec, C>(extents, Rows::packed), mean);
      v = filled(TestTensor<Exec, C>(extents, Rows::packed), square);
      return;
    }
    const auto coded_mean = ref::encode<double, MapSign::with>(mean);
    const auto coded_square = ref::encode<double, MapSign::without>(square);
    const std::int64_t blocks = coded_mean.scales.extent(0);
    m_code = filled(TestTensor<Exec, std::uint8_t>(extents, Rows::packed), coded_mean.codes);
    v_code = filled(TestTensor<Exec, std::uint8_t>(extents, Rows::packed), coded_square.codes);
    m_scale = filled(TestTensor<Exec, float>({blocks}, Rows::packed), coded_mean.scales);
    v_scale = filled(TestTensor<Exec, float>({blocks}, Rows::packed), coded_square.scales);
  }
};

/// Parameters of many shapes: tails of vectors, of blocks and of pieces, nothing at all, and more of them than
/// one launch takes.
inline const std::vector<std::vector<std::int64_t>> adamw_shapes = [] {
  std::vector<std::vector<std::int64_t>> shapes{{1},    {5},    {3, 5},    {17},         {256}, {257},
                                                {0, 4}, {8192}, {75, 113}, {2, 3, 4, 5}, {8209}};
  for (std::int64_t i = 0; i < 25; ++i) shapes.push_back({33 + i});
  return shapes;
}();

template <class T>
struct AdamWModel {
  std::vector<AdamWArrays<T>> arrays;
  std::vector<AdamWParameter> parameters;
  std::vector<Output*> outputs;

  explicit AdamWModel(States states, const std::vector<std::vector<std::int64_t>>& shapes = adamw_shapes,
                      Masters masters = Masters::with, unsigned seed = 20260104) {
    std::mt19937 generator(seed);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      arrays.emplace_back(shapes[i], states, masters, i % 2 == 0 ? 0.1 : 0.0, generator);
    for (AdamWArrays<T>& a : arrays) {
      parameters.push_back(a.parameter());
      for (Output* output : a.outputs()) outputs.push_back(output);
    }
  }
};

/// The kernels that are held to the cases.
struct AdamWKernels {
  KernelList<Impl::AdamW, Exec> step;
  KernelList<Impl::GradientNorm, Exec> norm;
};

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

struct AdamWCase {
  AdamWOptions options;
  double norm;  // NaN: none is given
};
inline const double none = std::numeric_limits<double>::quiet_NaN();
inline const std::vector<AdamWCase> adamw_cases{
    {{.learning_rate = 1e-2}, none},
    {{.learning_rate = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .step = 7, .gradient_scale = 0.37}, 3.0},
    {{.step = 100000, .gradient_scale = 1.0 / 1024, .max_norm = 1}, 700.0},
    {{.step = 3, .gradient_scale = 1.0 / 1024, .max_norm = 1.3}, 5000.0}};

template <class T, class Real>
ref::AdamWState<Real> stepped(const AdamWArrays<T>& a, const AdamWCase& c) {
  auto state = a.template read<Real>();
  const Real norm = static_cast<Real>(static_cast<compute_t<T>>(c.norm));
  ref::adamw(state, c.options, std::isnan(norm) ? nullptr : &norm);
  return state;
}

/// The textbook computation in the precision of T, with stored values rounded to their storage type.
template <class T>
ref::AdamWState<compute_t<T>> naive_step(const AdamWArrays<T>& a, const AdamWCase& c) {
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

template <class T>
void check_step(const AdamWModel<T>& model, const AdamWCase& c, const AdamWKernels& all) {
  using C = compute_t<T>;
  using R = oracle_t<T>;
  const auto m_of = [](const auto& state) { return state.m; };
  const auto v_of = [](const auto& state) { return state.v; };
  const auto weight_of = [](const auto& state) { return state.weight; };
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
  test_kernels(all.step, problem, model.outputs, [&](const std::string&) {
    const auto out = [&](auto read) { return joined<R>(model.arrays, read); };
    check_close<C>("m", out([](const auto& a) { return a.template read_m<R>(); }), joined<R>(expected, m_of),
                   joined<C>(naive, m_of));
    check_close<C>("v", out([](const auto& a) { return a.template read_v<R>(); }), joined<R>(expected, v_of),
                   joined<C>(naive, v_of));
    check_close<T>("weight", out([](const auto& a) { return a.weight.template read<R>(); }), weight,
                   naive_weight);
    if (model.arrays.front().has_master)
      check_close<C>("master", out([](const auto& a) { return a.master.template read<R>(); }), weight,
                     naive_master);
  });
}

template <class T>
void check_steps(Masters masters, const AdamWKernels& all) {
  for (const States states : states_of<T>())
    for (const AdamWCase& c : adamw_cases) check_step(AdamWModel<T>(states, adamw_shapes, masters), c, all);
}

template <class T>
void check_a_norm_that_is_not_finite_skips_the_whole_step(const AdamWKernels& all) {
  using C = compute_t<T>;
  const double infinity = std::numeric_limits<double>::infinity();
  for (const States states : states_of<T>())
    for (const double value : {infinity, none}) {
      AdamWModel<T> model(states);
      std::vector<std::vector<unsigned char>> before;
      for (const Output* output : model.outputs) before.push_back(output->bits());
      const auto norm = number<C>(value);
      for (const double max_norm : {0.0, 1.0})
        test_kernels(all.step, Impl::AdamW{model.parameters, norm.ref(), {.max_norm = max_norm}}, model.outputs,
                     [&](const std::string&) {
                       for (std::size_t i = 0; i < before.size(); ++i)
                         BOOST_TEST((model.outputs[i]->bits() == before[i]), "output " << i);
                     });
    }
}

template <class T>
void check_the_norm_matches_the_oracle(const AdamWKernels& all) {
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
    test_kernels(all.norm, Impl::GradientNorm{model.parameters, norm.ref()}, {&norm},
                 [&](const std::string&) { check_close("norm", norm, expected, naive); });
  }
}

template <class T>
void check_the_norm_of_nothing_is_zero_and_of_what_is_not_finite_neither(const AdamWKernels& all) {
  using C = compute_t<T>;
  auto norm = number<C>(none);
  test_kernels(all.norm, Impl::GradientNorm{{}, norm.ref()}, {&norm},
               [&](const std::string&) { BOOST_TEST(norm.template read<double>()(0) == 0); });
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double poison : {infinity, -infinity, none})
    for (const std::size_t where : {0, 40, 8208}) {
      AdamWModel<T> model(States::plain, {{3}, {8209}});
      model.arrays[1].gradient.fill([&](std::size_t i) { return static_cast<C>(i == where ? poison : 0.5); });
      test_kernels(all.norm, Impl::GradientNorm{model.parameters, norm.ref()}, {&norm},
                   [&](const std::string&) { BOOST_TEST(!std::isfinite(norm.template read<double>()(0))); });
    }
}

}  // namespace kformer::Testing
