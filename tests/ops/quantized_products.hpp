// SPDX-License-Identifier: MIT
#pragma once

#include "ops/quantized/reference.hpp"
#include "ops/quantized_cases.hpp"
#include "support/read_operand.hpp"
#include "support/references.hpp"

/// \file
/// Products with quantised weights against the oracle, by the kernels that `test` runs.

namespace kformer::Testing::quantized_products {
namespace reference = kformer::Impl::reference;

struct Shape {
  std::int64_t rows, in, out;
};

/// Where what is added to a product lies.
enum class Added { nothing, residual, to_y };

struct Product {
  QuantizedFormat format;
  Activations activations;
  Added added;
  Rows rows;
};

template <class T, class Test>
void test_linear(const Product& of, Shape s, unsigned seed, const Test& test) {
  std::mt19937 generator(seed);
  const auto x = TestTensor<Exec, T>({s.rows, s.in}, of.rows).random(generator);
  const auto weight = QuantizedWeights(of.format, s.out, s.in).random(generator);
  const auto residual = TestTensor<Exec, T>({s.rows, s.out}).random(generator);
  TestTensor<Exec, T> y({s.rows, s.out}, of.rows);
  if (of.added == Added::to_y) y.random(generator);
  Impl::QuantizedLinearForward problem{
      x.ref(), weight.matrix(), {}, y.ref(), {of.activations, of.added == Added::nothing ? 1.0 : -0.75}};
  if (of.added == Added::residual) problem.residual = residual.ref();
  if (of.added == Added::to_y) problem.residual = y.ref();
  problem.check();
  using Real = naive_t<T>;
  auto inputs = x.template read<Real>();
  if (of.activations == Activations::int8)
    inputs = reference::int8_activations<compute_t<T>, Real, T>(inputs, Impl::activation_group(of.format));
  const auto naive =
      reference::linear_forward<Real, T>(inputs, reference::dequantize<Real, T>(weight.matrix()), {},
                                         read_operand<Real>(problem.residual), Real(problem.options.scale));
  BOOST_TEST_CONTEXT(to_string(of.format) << (of.activations == Activations::full ? " full" : " int8"))
  test(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
}

struct AdapterShape {
  std::int64_t rows, in, out, rank;
};

/// scale · (left matrix + more_left more_right) + addend, rounded to Store; a product across or along the
/// matrices.
template <class Real, class Store>
HostTensor<Real> expected_sum(const HostTensor<Real>& left, const HostTensor<Real>& matrix,
                              const HostTensor<Real>& more_left, const HostTensor<Real>& more_right, bool along,
                              const HostTensor<Real>& addend, double scale) {
  HostTensor<Real> y({left.extent(0), matrix.extent(along ? 0 : 1)});
  const auto add = [&](std::int64_t r, std::int64_t c, const auto& a, const auto& b, Real& sum) {
    for (std::int64_t k = 0; k < a.extent(1); ++k) sum += a(r, k) * (along ? b(c, k) : b(k, c));
  };
  for (std::int64_t r = 0; r < y.extent(0); ++r)
    for (std::int64_t c = 0; c < y.extent(1); ++c) {
      Real sum = 0;
      add(r, c, left, matrix, sum);
      add(r, c, more_left, more_right, sum);
      y(r, c) = stored<Store>(Real(scale) * sum);
      if (addend.present()) y(r, c) = stored<Store>(addend(r, c) + y(r, c));
    }
  return y;
}

template <class T, class Test>
void test_adapter(QuantizedFormat format, AdapterShape s, bool residual, Rows rows, unsigned seed,
                  const Test& test) {
  using Real = naive_t<T>;
  std::mt19937 generator(seed);
  const auto tensor = [&](std::int64_t r, std::int64_t c) {
    return TestTensor<Exec, T>({r, c}, rows).random(generator);
  };
  const auto x = tensor(s.rows, s.in), xa = tensor(s.rows, s.rank), b = tensor(s.out, s.rank),
             added = tensor(s.rows, s.out);
  const auto weight = QuantizedWeights(format, s.out, s.in).random(generator);
  TestTensor<Exec, T> y({s.rows, s.out});
  const double scale = residual ? 1 : -0.75;
  const Impl::QuantizedLinearForward problem{x.ref(),
                                             weight.matrix(),
                                             residual ? added.ref() : TensorRef{},
                                             y.ref(),
                                             {Activations::full, scale},
                                             {xa.ref(), b.ref()}};
  problem.check();
  const auto naive = expected_sum<Real, T>(
      x.template read<Real>(), reference::dequantize<Real, T>(weight.matrix()), xa.template read<Real>(),
      b.template read<Real>(), true, read_operand<Real>(problem.residual), scale);
  BOOST_TEST_CONTEXT(to_string(format) << " of " << s.rows << " rows")
  test(problem, {&y}, [&](const std::string&) { check_close("y", y, naive); });
}

/// NaN, infinite and greatest scales, and activations that are not finite: nothing is read or written
/// outside, and NaN is visible.
template <class T, class Test>
void test_hostile_numbers(const std::vector<std::int64_t>& counts, Rows layout, const Test& test) {
  std::mt19937 generator(6);
  for (const QuantizedFormat format : quantized_formats)
    for (const unsigned bits : {0x7e00u, 0x7c00u, 0xfc00u, 0x7bffu, 0x8000u})
      for (const auto activations : activations_with(format)) {
        auto weight = QuantizedWeights(format, 9, 600);
        weight.random(generator, [&](std::size_t) { return bits; });
        for (const std::int64_t rows : counts) {
          const auto x = TestTensor<Exec, T>({rows, 600}, layout).random(generator);
          TestTensor<Exec, T> y({rows, 9});
          const Impl::QuantizedLinearForward problem{x.ref(), weight.matrix(), {}, y.ref(), {activations, 1}};
          test(problem, {&y}, [&](const std::string&) {
            const auto got = y.template read<double>();
            for (const double v : got.values()) BOOST_TEST((bits != 0x7e00u || std::isnan(v)));
          });
        }
      }
  for (const QuantizedFormat format : quantized_formats)
    for (const auto activations : activations_with(format))
      for (const double bad :
           {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
        const auto weight = QuantizedWeights(format, 3, 304).random(generator);
        auto x = TestTensor<Exec, T>({6, 304}, layout).random(generator);
        const auto values = x.template read<compute_t<T>>();
        x.fill([&](std::size_t i) {
          return T(i == 2 * 304 + 7 ? static_cast<compute_t<T>>(bad) : values.values()[i]);
        });
        TestTensor<Exec, T> y({6, 3});
        const Impl::QuantizedLinearForward problem{x.ref(), weight.matrix(), {}, y.ref(), {activations, 1}};
        // Infinities times weights of either sign may stay infinite.
        const bool gives_nan = std::isnan(bad) || activations == Activations::int8;
        test(problem, {&y}, [&](const std::string&) {
          const auto got = y.template read<double>();
          for (int r = 0; r < 6; ++r)
            for (int o = 0; o < 3; ++o) {
              BOOST_TEST(std::isfinite(got(r, o)) == (r != 2));
              if (gives_nan) BOOST_TEST(std::isnan(got(r, o)) == (r == 2));
            }
        });
      }
}

}  // namespace kformer::Testing::quantized_products
