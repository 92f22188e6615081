// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

#include "kformer/io/safetensors.hpp"
#include "model/layer_run.hpp"

/// \file
/// A layer against what an independent implementation made of it.

namespace kformer::Testing {

inline HostTensor<double> read(const SafetensorsFile& file, const std::string& name) {
  const auto& shape = file.at(name).shape;
  const auto extent = [&](std::size_t r) { return static_cast<std::int64_t>(shape.at(r)); };
  auto t = shape.size() == 1   ? HostTensor<double>({extent(0)})
           : shape.size() == 2 ? HostTensor<double>({extent(0), extent(1)})
                               : HostTensor<double>({extent(0) * extent(1), extent(2)});
  t.values() = file.read_f64(name);
  return t;
}

/// Inputs and expected outputs.
struct LayerCase {
  LayerInputs inputs;
  LayerResult<double> expected;

  /// From `<path>.inputs.safetensors` and `<path>.expected.safetensors`.
  explicit LayerCase(const std::filesystem::path& path) {
    const auto in = SafetensorsFile::open(path.string() + ".inputs.safetensors");
    const auto out = SafetensorsFile::open(path.string() + ".expected.safetensors");
    const auto integer = [&](const char* key) { return std::stoll(in.metadata().at(key)); };
    LlamaConfig& c = inputs.config;
    c.hidden_size = integer("hidden_size");
    c.intermediate_size = integer("intermediate_size");
    c.num_attention_heads = integer("num_attention_heads");
    c.num_key_value_heads = integer("num_key_value_heads");
    c.head_dim = integer("head_dim");
    c.rms_norm_eps = std::stod(in.metadata().at("rms_norm_eps"));
    c.rope.theta = std::stod(in.metadata().at("rope_theta"));
    const auto& shape = in.at("hidden_states").shape;
    inputs.shape = {static_cast<std::int64_t>(shape.at(0)), static_cast<std::int64_t>(shape.at(1))};
    inputs.x = read(in, "hidden_states");
    inputs.dy = read(in, "grad_output");
    expected.y = read(out, "output");
    expected.dx = read(out, "grad.hidden_states");
    for (const auto& [name, extents] : parameter_extents(c)) {
      inputs.weights[name] = read(in, name);
      expected.gradients[name] = read(out, "grad." + name);
    }
  }
};

/// Calls `f(name, computed, expected)` for the output and every gradient of the layer.
template <class T, class F>
void for_each_result(const LayerCase& c, AttentionAlgorithm algorithm, F f) {
  LayerUnderTest<T> run(c.inputs, algorithm);
  run.forward();
  run.backward();
  f("output", run.y().template read<double>(), c.expected.y);
  f("grad.hidden_states", run.dx().template read<double>(), c.expected.dx);
  for (const Parameter& p : run.layer().parameters())
    f("grad." + p.name, run.template gradient<double>(p), c.expected.gradients.at(p.name));
}

/// Largest error over the largest element.
inline double relative_error(const HostTensor<double>& computed, const HostTensor<double>& expected) {
  BOOST_REQUIRE(computed.values().size() == expected.values().size());
  return static_cast<double>(error_norms(computed.values(), expected.values()).max /
                             magnitude(expected.values()).max);
}

inline constexpr AttentionAlgorithm layer_case_algorithms[] = {AttentionAlgorithm::standard,
                                                               AttentionAlgorithm::flash};

/// In double and float.
inline void check_double_and_float(const LayerCase& c) {
  const auto check = [&]<class T>(std::type_identity<T>, AttentionAlgorithm algorithm, double limit) {
    for_each_result<T>(c, algorithm, [&](const std::string& name, const auto& computed, const auto& expected) {
      const double error = relative_error(computed, expected);
      BOOST_TEST(error <= limit, name << ": " << error << " above " << limit);
    });
  };
  for (const AttentionAlgorithm algorithm : layer_case_algorithms) {
    check(std::type_identity<double>{}, algorithm, 1e-12);
    check(std::type_identity<float>{}, algorithm, 5e-6);
  }
}

/// In 16 bits, by the tolerance rule.
template <class T>
void check_sixteen_bits(const LayerCase& c) {
  const auto naive = c.inputs.template rounded<T>().template reference<naive_t<T>, T>();
  const auto naive_of = [&](const std::string& name) -> const HostTensor<naive_t<T>>& {
    if (name == "output") return naive.y;
    if (name == "grad.hidden_states") return naive.dx;
    return naive.gradients.at(name.substr(5));
  };
  for (const AttentionAlgorithm algorithm : layer_case_algorithms)
    for_each_result<T>(c, algorithm, [&](const std::string& name, const auto& computed, const auto& expected) {
      const Comparison verdict = compare<T>(computed, expected, naive_of(name));
      BOOST_TEST(verdict.ok, name << ": " << verdict.report);
    });
}

/// The references themselves, so that they can be the oracle for shapes without values of others.
inline void check_references(const LayerCase& c) {
  const auto result = c.inputs.reference<double, double>();
  BOOST_TEST(relative_error(result.y, c.expected.y) <= 1e-12);
  BOOST_TEST(relative_error(result.dx, c.expected.dx) <= 1e-12);
  for (const auto& [name, gradient] : result.gradients)
    BOOST_TEST(relative_error(gradient, c.expected.gradients.at(name)) <= 1e-12, name);
}

}  // namespace kformer::Testing
