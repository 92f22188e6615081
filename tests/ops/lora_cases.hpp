// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/lora.hpp"
#include "ops/linear_cases.hpp"

/// \file
/// Adapters for tests, with their checks. `test(problem, outputs, verify)` runs the kernels in question, as
/// `test_every_kernel` does.

namespace kformer::Testing::lora_cases {
namespace ref = kformer::Impl::reference;
using linear_cases::Added, linear_cases::belongs_to, linear_cases::every_added;

/// The adapter of some columns.
struct Part {
  std::int64_t column, columns, rank;
  double scale;
};

struct Case {
  std::int64_t rows, in, out;
  std::vector<Part> parts;
};

// One adapter, several with columns between them, ranks that are no multiple of a vector, several tiles of rows and
// of columns, several steps of every sum, neighbours of one scale, and extents of zero.
inline const std::vector<Case> cases{
    {1, 1, 1, {{0, 1, 1, 1}}},
    {3, 5, 7, {{0, 7, 2, -0.75}}},
    {32, 48, 34, {{0, 34, 16, 2}}},
    {33, 40, 70, {{0, 30, 3, 0.5}, {30, 20, 5, -1.5}, {50, 20, 1, 3}}},
    {75, 33, 70, {{5, 20, 4, 0.5}, {40, 25, 8, 2}}},
    {33, 170, 64, {{0, 16, 3, 0.5}, {16, 16, 5, 0.5}, {32, 32, 4, -1.5}}},
    {70, 600, 100, {{0, 60, 33, 0.3}, {60, 40, 7, 0.7}}},
    {300, 70, 340, {{0, 300, 16, 1.25}}},
    {530, 20, 40, {{5, 30, 300, 0.1}}},
    {140, 20, 30, {}},
    {9, 8, 6, {{2, 0, 3, 1}, {3, 2, 0, 1}}},
    {0, 4, 5, {{0, 5, 2, 1}}},
    {4, 0, 5, {{0, 5, 2, 1}}},
    {70, 4, 0, {{0, 0, 2, 1}}},
};

inline std::int64_t terms_of(const Case& c) {
  std::int64_t ranks = 0;
  for (const Part& part : c.parts) ranks += part.rank * (c.in + part.columns);
  return c.rows * (c.in * c.out + ranks);
}

template <class T>
struct Tensors {
  Case c;
  TestTensor<Exec, T> x, weight, bias, residual, a, xa, y, dy, dxa, dx;
  std::vector<TestTensor<Exec, T>> b;

  explicit Tensors(const Case& shape, Rows kind = Rows::strided, unsigned seed = 20261126) : c(shape) {
    std::mt19937 generator(seed);
    std::int64_t rank = 0;
    for (const Part& part : c.parts) {
      rank += part.rank;
      b.push_back(TestTensor<Exec, T>({part.columns, part.rank}, kind).random(generator));
    }
    const auto tensor = [&](std::int64_t m, std::int64_t n) { return TestTensor<Exec, T>({m, n}, kind); };
    x = tensor(c.rows, c.in).random(generator);
    weight = tensor(c.out, c.in).random(generator, 0.5);
    bias = TestTensor<Exec, T>({c.out}).random(generator, 3.0);
    residual = tensor(c.rows, c.out).random(generator, 3.0);
    a = tensor(rank, c.in).random(generator, 0.5);
    xa = tensor(c.rows, rank);
    y = tensor(c.rows, c.out);
    dy = tensor(c.rows, c.out).random(generator);
    dxa = tensor(c.rows, rank);
    dx = tensor(c.rows, c.in);
  }
  Impl::LoraFactors parts() const {
    Impl::LoraFactors all;
    for (std::size_t i = 0; i < b.size(); ++i)
      all.part[all.count++] = {b[i].ref(), c.parts[i].column, c.parts[i].scale};
    return all;
  }
  template <class Real>
  std::vector<ref::LoraTensors<Real>> tensors() const {
    std::vector<ref::LoraTensors<Real>> all;
    for (std::size_t i = 0; i < b.size(); ++i)
      all.push_back({b[i].template read<Real>(), c.parts[i].column, Real(c.parts[i].scale)});
    return all;
  }
};

/// Whether a kernel stores the terms of the adapters, with what is added, before it adds those of the weight.
inline bool stores_adapters_first(const std::string& kernel) {
  return kernel == "cublaslt" || kernel == "column_major_gemm";
}

/// Both terms, one of which has been stored.
template <class T, class Real>
HostTensor<Real> stored_sum(const ref::LoraResult<Real>& adapters, HostTensor<Real> weight) {
  for (std::size_t i = 0; i < weight.values().size(); ++i)
    weight.values()[i] = Impl::stored<T>(adapters.full.values()[i] + weight.values()[i]);
  return weight;
}

/// A matrix of zeros in place of the weight.
template <class Real>
HostTensor<Real> no_weight(const Case& c) {
  return HostTensor<Real>({c.out, c.in});
}

template <class T, class Test>
void test_forward(Tensors<T> t, Added added, const Test& test) {
  std::mt19937 generator(11);
  if (added == Added::to_y) t.y.random(generator, 3.0);
  Impl::LoraForward problem{t.x.ref(), t.weight.ref(), {}, {}, t.a.ref(), t.parts(), t.xa.ref(), t.y.ref()};
  if (added == Added::bias) problem.bias = t.bias.ref();
  if (added == Added::residual) problem.residual = t.residual.ref();
  if (added == Added::to_y) problem.residual = t.y.ref();
  problem.check();
  using Real = naive_t<T>;
  const auto x = t.x.template read<Real>(), weight = t.weight.template read<Real>();
  const auto with_weight = [&, bias = read_operand<Real>(problem.bias),
                            residual = read_operand<Real>(problem.residual)](const HostTensor<Real>& w) {
    return ref::lora_forward<Real, T>(x, w, bias, residual, t.a.template read<Real>(),
                                      t.template tensors<Real>());
  };
  const auto naive = with_weight(weight);
  const auto in_two_steps = [&] {
    return stored_sum<T>(with_weight(no_weight<Real>(t.c)),
                         ref::linear_forward<Real, T>(x, weight, {}, {}, Real(1)));
  };
  test(problem, std::vector<Output*>{&t.xa, &t.y}, [&](const std::string& kernel) {
    check_close("xa", t.xa, naive.low);
    check_close("y", t.y, stores_adapters_first(kernel) ? in_two_steps() : naive.full);
  });
}

template <class T, class Test>
void test_backward_input(Tensors<T> t, const Test& test) {
  using Real = naive_t<T>;
  const Impl::LoraBackwardInput problem{t.weight.ref(), t.a.ref(),   t.parts(),
                                        t.dy.ref(),     t.dxa.ref(), t.dx.ref()};
  problem.check();
  const auto weight = t.weight.template read<Real>(), dy = t.dy.template read<Real>();
  const auto with_weight = [&](const HostTensor<Real>& w) {
    return ref::lora_backward_input<Real, T>(w, t.a.template read<Real>(), t.template tensors<Real>(), dy);
  };
  const auto naive = with_weight(weight);
  const auto in_two_steps = [&] {
    return stored_sum<T>(with_weight(no_weight<Real>(t.c)),
                         ref::linear_backward_input<Real, T>(weight, dy, Real(1)));
  };
  test(problem, std::vector<Output*>{&t.dxa, &t.dx}, [&](const std::string& kernel) {
    check_close("dxa", t.dxa, naive.low);
    check_close("dx", t.dx, stores_adapters_first(kernel) ? in_two_steps() : naive.full);
  });
}

}  // namespace kformer::Testing::lora_cases
