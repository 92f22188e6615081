// SPDX-License-Identifier: MIT
#include "kformer/ops/linear.hpp"

#include "blocks/blas.hpp"
#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, in, out;
};

template <class T>
class Forward : public BlasCall {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_shape(s),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.in)),
        m_weight(random_array<T**>(exec, seed + 1, "kformer::perf::weight", s.out, s.in)),
        m_y("kformer::perf::y", s.rows, s.out) {}
  std::size_t bytes() const { return bytes_of(m_x, m_weight, m_y); }
  void launch(const Space& exec) const { linear_forward(exec, m_x, m_weight, m_y); }
  void launch_blas(const Space& exec) const
    requires(has_blas && std::is_same_v<T, float>)
  {
    blas_product(exec.concurrency(), m_shape.rows, m_shape.out, m_shape.in, {m_x.data(), m_shape.in, false},
                 {m_weight.data(), m_shape.in, true}, 0, m_y.data());
  }

 private:
  Shape m_shape;
  Array<T**> m_x, m_weight, m_y;
};

template <class T>
class BackwardInput : public BlasCall {
 public:
  BackwardInput(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_shape(s),
        m_weight(random_array<T**>(exec, seed, "kformer::perf::weight", s.out, s.in)),
        m_dy(random_array<T**>(exec, seed + 1, "kformer::perf::dy", s.rows, s.out)),
        m_dx("kformer::perf::dx", s.rows, s.in) {}
  std::size_t bytes() const { return bytes_of(m_weight, m_dy, m_dx); }
  void launch(const Space& exec) const { linear_backward_input(exec, m_weight, m_dy, m_dx); }
  void launch_blas(const Space& exec) const
    requires(has_blas && std::is_same_v<T, float>)
  {
    blas_product(exec.concurrency(), m_shape.rows, m_shape.in, m_shape.out, {m_dy.data(), m_shape.out, false},
                 {m_weight.data(), m_shape.in, false}, 0, m_dx.data());
  }

 private:
  Shape m_shape;
  Array<T**> m_weight, m_dy, m_dx;
};

template <class T>
class BackwardWeight : public BlasCall {
 public:
  BackwardWeight(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_shape(s),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.in)),
        m_dy(random_array<T**>(exec, seed + 1, "kformer::perf::dy", s.rows, s.out)),
        m_dweight("kformer::perf::dweight", s.out, s.in) {}
  std::size_t bytes() const { return bytes_of(m_x, m_dy, m_dweight); }
  void launch(const Space& exec) const { linear_backward_weight(exec, m_x, m_dy, m_dweight); }
  void launch_blas(const Space& exec) const
    requires(has_blas && std::is_same_v<T, float>)
  {
    blas_product(exec.concurrency(), m_shape.out, m_shape.in, m_shape.rows, {m_dy.data(), m_shape.out, true},
                 {m_x.data(), m_shape.in, false}, 1, m_dweight.data());
  }

 private:
  Shape m_shape;
  Array<T**> m_x, m_dy;
  Array<compute_t<T>**> m_dweight;
};

template <template <class> class Call>
Case make_case(const char* direction, DType dtype, const std::string& tail, const Shape& s) {
  return {.block = "linear",
          .direction = direction,
          .dtype = dtype,
          .tail = tail,
          .limit = Limit::arithmetic,
          .flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out),
          .bytes = bytes_of_arrays(1, s.rows * (s.in + s.out) + s.in * s.out, dtype),
          .shape = {{"rows", s.rows}, {"in", s.in}, {"out", s.out}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> linear_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  const auto add = [&](DType dtype, const std::string& tail, const Shape& shape) {
    cases.push_back(make_case<Forward>("forward", dtype, tail, shape));
    cases.push_back(make_case<BackwardInput>("backward_input", dtype, tail, shape));
    cases.push_back(make_case<BackwardWeight>("backward_weight", dtype, tail, shape));
  };
  const std::int64_t rows = sizes.batch * sizes.tokens;
  for (const DType dtype : sizes.dtypes)
    for (const auto& [name, config] : sizes.models) {
      const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
      add(dtype, name + "/qkv", {rows, hidden, config.qkv_size()});
      add(dtype, name + "/out", {rows, config.attention_size(), hidden});
      add(dtype, name + "/gate_up", {rows, hidden, 2 * inner});
      add(dtype, name + "/down", {rows, inner, hidden});
    }
  return cases;
}

}  // namespace kformer::perf
