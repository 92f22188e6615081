// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "ops/adamw_cases.hpp"

/// \file
/// What kernels make of states of 8 bits.

namespace kformer::Testing {
using kformer::Impl::DynamicMap;
using kformer::Impl::MapSign;

template <MapSign sign>
using Sign = std::integral_constant<MapSign, sign>;

/// One step from states of zero with β1 = β2 = 0, after which m is the gradient and v its square, bit for bit.
template <class Check>
void check_codes_of(const AdamWKernels& all, const std::vector<float>& gradients, Check check) {
  const auto length = static_cast<std::int64_t>(gradients.size());
  AdamWModel<float> model(States::coded, {{length}});
  auto& a = model.arrays[0];
  a.gradient.fill([&](std::size_t i) { return gradients[i]; });
  for (auto* scale : {&a.m_scale, &a.v_scale}) scale->fill([](std::size_t) { return 0.0f; });
  const auto encode = [&]<MapSign sign>(Sign<sign>, auto value) {
    HostTensor<float> values({length});
    for (std::size_t i = 0; i < gradients.size(); ++i) values.values()[i] = value(gradients[i]);
    return ref::encode<float, sign>(values);
  };
  const auto m = encode(Sign<MapSign::with>{}, [](float g) { return g; });
  const auto v = encode(Sign<MapSign::without>{}, [](float g) { return g * g; });
  test_kernels(all.step, Impl::AdamW{model.parameters, {}, {.beta1 = 0, .beta2 = 0}}, model.outputs,
               [&](const std::string&) {
                 BOOST_TEST(a.m_code.template read<float>().values() == m.codes.values());
                 BOOST_TEST(a.v_code.template read<float>().values() == v.codes.values());
                 check(a.m_scale.template read<float>().values(), m.scales.values());
                 check(a.v_scale.template read<float>().values(), v.scales.values());
               });
}

inline void check_same_scales(const std::vector<float>& got, const std::vector<float>& expected) {
  BOOST_TEST(got == expected);
}

inline void check_codes_of_many_magnitudes(const AdamWKernels& all) {
  std::mt19937 generator(20260106);
  std::normal_distribution<float> normal;
  for (const std::size_t length : {1, 5, 15, 17, 33, 255, 256, 257, 513, 8209})
    for (const float scale : {1.0f, 1e-12f}) {
      std::vector<float> gradients(length);
      // Magnitudes over nine decades, and zeros.
      for (float& g : gradients)
        g = generator() % 9 == 0 ? 0.0f : scale * normal(generator) * std::pow(10.0f, -float(generator() % 10));
      check_codes_of(all, gradients, check_same_scales);
    }
}

// With a scale of 1 the quotients are the gradients themselves: exactly between two values, and next to that.
inline void check_ties(const AdamWKernels& all) {
  const DynamicMap with = Impl::dynamic_map<MapSign::with>(), without = Impl::dynamic_map<MapSign::without>();
  std::vector<float> gradients;
  const auto add = [&](float x) {
    if (gradients.size() % adamw_block == 0) gradients.push_back(1.0f);
    gradients.push_back(x);
  };
  for (int code = 0; code < 255; ++code)
    for (const float x :
         {with.border[code], with.value[code], std::sqrt(without.border[code]), std::sqrt(without.value[code])})
      for (const float neighbour : {std::nextafter(x, -2.0f), x, std::nextafter(x, 2.0f)}) add(neighbour);
  check_codes_of(all, gradients, check_same_scales);
}

inline void check_blocks_of_zeros(const AdamWKernels& all) {
  std::vector<float> gradients(600, 0.0f);
  gradients[599] = 3.0f;
  check_codes_of(all, gradients, [](const std::vector<float>& got, const std::vector<float>& expected) {
    BOOST_TEST(got == expected);
    BOOST_TEST(got[0] == 0);
    BOOST_TEST(got[1] == 0);
  });
}

// Behind the last element a kernel may compute with code 0, which stands for minus the scale.
inline void check_nothing_behind_the_last_element_counts(const AdamWKernels& all) {
  AdamWModel<float> model(States::coded, {{259}});
  auto& a = model.arrays[0];
  a.gradient.fill([](std::size_t) { return 0.5f; });
  a.m_code.fill([](std::size_t) { return std::uint8_t{127}; });  // 0
  a.m_scale.fill([](std::size_t) { return 8.0f; });
  test_kernels(all.step, Impl::AdamW{model.parameters, {}, {.beta1 = 0.75}}, model.outputs,
               [&](const std::string&) {
                 BOOST_TEST(a.m_scale.read<float>().values() == std::vector<float>({0.125f, 0.125f}));
               });
}

inline void check_numbers_that_are_not_finite(const AdamWKernels& all) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float poison : {infinity, -infinity, nan}) {
    std::vector<float> gradients(300, 0.5f);
    gradients[100] = poison;
    gradients[7] = infinity;
    check_codes_of(all, gradients, [](const std::vector<float>& got, const std::vector<float>& expected) {
      for (std::size_t i = 0; i < got.size(); ++i)
        BOOST_TEST((got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))));
      BOOST_TEST(!std::isfinite(got[0]));
      BOOST_TEST(std::isfinite(got[1]));
    });
  }
}

}  // namespace kformer::Testing
