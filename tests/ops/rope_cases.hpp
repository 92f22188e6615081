// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/rope.hpp"
#include "ops/rope/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Problems of the rotary embedding for tests, with their checks. `test(problem, outputs, verify)` runs
/// the kernels in question, as `test_every_kernel` does.

namespace kformer::Testing::rope_cases {
namespace ref = kformer::Impl::reference;

struct Shape {
  std::int64_t batch, seq, q_heads, kv_heads, head_dim;
};

enum class Positions { consecutive, shared, arbitrary };

constexpr unsigned usual_seed = 20260102;

template <class T>
struct Tensors {
  static constexpr std::int64_t table_rows = 60;
  static constexpr std::int64_t first_position = 3;
  TestTensor<Exec, T> q, k;
  TestTensor<Exec, compute_t<T>> cos, sin;
  TestTensor<Exec, std::int32_t> positions;

  Tensors(Shape s, Positions kind, Rows rows = Rows::strided, unsigned seed = usual_seed) {
    std::mt19937 generator(seed);
    q = TestTensor<Exec, T>({s.batch, s.seq, s.q_heads, s.head_dim}, rows).random(generator);
    k = TestTensor<Exec, T>({s.batch, s.seq, s.kv_heads, s.head_dim}, rows).random(generator, 3.0);
    const auto tables = ref::rope_tables<double, double>(table_rows, s.head_dim / 2, {});
    cos = TestTensor<Exec, compute_t<T>>({table_rows, s.head_dim / 2}, rows).fill([&](std::size_t i) {
      return tables.cos.values()[i];
    });
    sin = TestTensor<Exec, compute_t<T>>({table_rows, s.head_dim / 2}, rows).fill([&](std::size_t i) {
      return tables.sin.values()[i];
    });
    if (kind == Positions::consecutive) return;
    std::uniform_int_distribution<std::int32_t> any(0, table_rows - 1);
    positions = TestTensor<Exec, std::int32_t>({kind == Positions::shared ? 1 : s.batch, s.seq});
    positions.fill([&](std::size_t) { return any(generator); });
  }

  Impl::RopeRotation rotation(RopeLayout layout) const {
    return {q.ref(), k.ref(), cos.ref(), sin.ref(), positions.ref(), first_position, layout};
  }

  template <class Real, class Store>
  HostTensor<Real> rotated(const HostTensor<Real>& x, RopeLayout layout, int direction) const {
    return ref::rope_rotate<Real, Store>(x, cos.template read<Real>(), sin.template read<Real>(),
                                         positions.template read<Real>(), first_position, layout, direction);
  }
};

template <class Problem, class T, class Test>
void test_rotation(Shape shape, int direction, Rows rows, Test test, unsigned seed = usual_seed) {
  for (const auto kind : {Positions::consecutive, Positions::shared, Positions::arbitrary})
    for (const auto layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
      Tensors<T> t(shape, kind, rows, seed);
      auto expected = [&]<class Real, class Store>(const TestTensor<Exec, T>& x) {
        return t.template rotated<Real, Store>(x.template read<Real>(), layout, direction);
      };
      const auto q = expected.template operator()<naive_t<T>, T>(t.q);
      const auto k = expected.template operator()<naive_t<T>, T>(t.k);
      test(Problem{t.rotation(layout)}, std::vector<Output*>{&t.q, &t.k}, [&](const std::string&) {
        check_close("q", t.q, q);
        check_close("k", t.k, k);
      });
    }
}

template <class T, class Test>
void test_positions_outside(std::int64_t head_dim, Rows rows, Test test) {
  Tensors<T> t({1, 4, 2, 1, head_dim}, Positions::arbitrary, rows);
  const std::int32_t outside[] = {-1, 7, Tensors<T>::table_rows, 0};
  t.positions.fill([&](std::size_t i) { return outside[i]; });
  for (const auto layout : {RopeLayout::half_split, RopeLayout::interleaved}) {
    const auto q = t.template rotated<double, double>(t.q.template read<double>(), layout, +1);
    test(Impl::RopeForward{t.rotation(layout)}, std::vector<Output*>{&t.q, &t.k}, [&](const std::string&) {
      const auto got = t.q.template read<double>(), keys = t.k.template read<double>();
      for (int s = 0; s < 4; ++s)
        for (std::int64_t i = 0; i < head_dim; ++i) {
          BOOST_TEST(std::isnan(got(0, s, 1, i)) == (s == 0 || s == 2));
          BOOST_TEST(std::isnan(keys(0, s, 0, i)) == (s == 0 || s == 2));
          BOOST_TEST(std::isnan(q(0, s, 1, i)) == (s == 0 || s == 2));
        }
    });
  }
}

}  // namespace kformer::Testing::rope_cases
