// SPDX-License-Identifier: MIT
#pragma once

#include <random>
#include <vector>

#include "ops/adamw/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Parameters of AdamW for tests: arrays with guard zones, and the same in plain numbers.

namespace kformer::Testing {

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
    if (has_master)  // the 16-bit weight is an output alone, and stays NaN
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
    namespace ref = kformer::Impl::reference;
    if (states == States::plain) return m.template read<Real>();
    return ref::decode<Real, kformer::Impl::MapSign::with>(
        {m_code.template read<Real>(), m_scale.template read<Real>()});
  }
  template <class Real>
  HostTensor<Real> read_v() const {
    namespace ref = kformer::Impl::reference;
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
  /// As training leaves them: a mean square is no less than the square of the mean.
  void set_states(const std::vector<std::int64_t>& extents, std::mt19937& generator) {
    namespace ref = kformer::Impl::reference;
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
                      Masters masters = Masters::with) {
    std::mt19937 generator(20260104);
    for (std::size_t i = 0; i < shapes.size(); ++i)
      arrays.emplace_back(shapes[i], states, masters, i % 2 == 0 ? 0.1 : 0.0, generator);
    for (AdamWArrays<T>& a : arrays) {
      parameters.push_back(a.parameter());
      for (Output* output : a.outputs()) outputs.push_back(output);
    }
  }
};

}  // namespace kformer::Testing
