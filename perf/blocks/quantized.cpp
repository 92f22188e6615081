// SPDX-License-Identifier: MIT
#include "kformer/ops/ternary.hpp"

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  QuantizedFormat format;
  Activations activations;
  std::int64_t rows, in, out;
  bool one_scale = false;  ///< for all weights, as in a ternary model
};

template <class T>
class Forward {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_shape(s),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.in)),
        m_y("kformer::perf::y", s.rows, s.out),
        m_weight("kformer::perf::weight", quantized_bytes(s.format, s.out, s.in)) {
    const auto numbers = random_array<float**>(exec, seed + 1, "kformer::perf::numbers", s.out, s.in);
    const QuantizedOutput weight{s.format, m_weight.data(), s.out, s.in};
    if (s.one_scale) {
      const Array<std::byte*> workspace("kformer::perf::workspace",
                                        ternary_quantize_workspace_bytes(exec, weight));
      ternary_quantize(exec, numbers, weight, Workspace(workspace));
    } else {
      quantize(exec, numbers, weight);
    }
    exec.fence("kformer::perf: quantized weights");
  }
  std::size_t bytes() const { return bytes_of(m_x, m_y, m_weight); }
  void launch(const Space& exec) const {
    quantized_linear_forward(exec, m_x, {m_shape.format, m_weight.data(), m_shape.out, m_shape.in}, m_y,
                             {m_shape.activations});
  }

 private:
  Shape m_shape;
  Array<T**> m_x, m_y;
  Array<std::byte*> m_weight;
};

/// The gradient with respect to x.
template <class T>
class BackwardInput {
 public:
  BackwardInput(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_shape(s),
        m_dy(random_array<T**>(exec, seed, "kformer::perf::dy", s.rows, s.out)),
        m_dx("kformer::perf::dx", s.rows, s.in),
        m_weight("kformer::perf::weight", quantized_bytes(s.format, s.out, s.in)) {
    const auto numbers = random_array<float**>(exec, seed + 1, "kformer::perf::numbers", s.out, s.in);
    quantize(exec, numbers, QuantizedOutput{s.format, m_weight.data(), s.out, s.in});
    exec.fence("kformer::perf: quantized weights");
  }
  std::size_t bytes() const { return bytes_of(m_dy, m_dx, m_weight); }
  void launch(const Space& exec) const {
    quantized_linear_backward_input(exec, {m_shape.format, m_weight.data(), m_shape.out, m_shape.in}, m_dy,
                                    m_dx);
  }

 private:
  Shape m_shape;
  Array<T**> m_dy, m_dx;
  Array<std::byte*> m_weight;
};

// Of one row memory sets the pace, of several arithmetic.
Case make_case(DType dtype, const std::string& model, const Shape& s) {
  const bool is_int8 = s.activations == Activations::int8;
  return {.block = is_ternary(s.format) ? "ternary" : "quantized",
          .direction = is_int8 ? "forward_int8" : "forward",
          .dtype = dtype,
          .tail = model + '/' + to_string(s.format) + (s.one_scale ? "_one_scale" : "") + "/rows" +
                  std::to_string(s.rows),
          .limit = s.rows > 1 ? Limit::arithmetic : Limit::memory,
          .flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out),
          .bytes = static_cast<double>(quantized_bytes(s.format, s.out, s.in)) +
                   bytes_of_arrays(1, s.rows * (s.in + s.out), dtype),
          .written = bytes_of_arrays(1, s.rows * s.out, dtype),
          .int8 = is_int8,
          .shape = {{"rows", s.rows}, {"in", s.in}, {"out", s.out}},
          .make = rotating<Forward>(dtype, s)};
}

}  // namespace

std::vector<Case> quantized_cases(const BlockSizes& sizes) {
  using enum QuantizedFormat;
  std::vector<Case> cases;
  const std::int64_t many = sizes.tokens / 2;
  for (const auto& [name, config] : sizes.models) {
    const auto add = [&](QuantizedFormat format, Activations activations, std::int64_t rows,
                         bool one_scale = false) {
      cases.push_back(
          make_case(DType::f32, name,
                    {format, activations, rows, config.hidden_size, config.intermediate_size, one_scale}));
    };
    for (const auto activations : {Activations::full, Activations::int8})
      for (const std::int64_t rows : {std::int64_t(1), std::int64_t(4), many})
        for (const QuantizedFormat format : {q8_0, q4_0, q4_1, nf4})
          if (activations == Activations::full || has_integer_codes(format)) add(format, activations, rows);
    for (const std::int64_t rows : {1, 4})
      for (const QuantizedFormat format : {tq2_0, tq1_0})
        for (const bool one_scale : {true, false}) add(format, Activations::int8, rows, one_scale);
    for (const QuantizedFormat format : {q8_0, nf4}) {
      const Shape shape{format, Activations::full, many, config.hidden_size, config.intermediate_size};
      cases.push_back(make_case(DType::f32, name, shape));
      cases.back().direction = "backward_input";
      cases.back().make = rotating<BackwardInput>(DType::f32, shape);
    }
  }
  return cases;
}

}  // namespace kformer::perf
