// SPDX-License-Identifier: MIT
#include "kformer/ops/rms_norm.hpp"

#include "ops/rms_norm/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(rms_norm)

struct Shape {
  std::int64_t rows, hidden;
};
const std::vector<Shape> shapes{{1, 1}, {3, 5}, {75, 113}, {65, 64}, {2, 1025}, {0, 8}};

template <class T>
struct Tensors {
  TestTensor<Exec, T> x, residual, weight, sum, y, dy, dsum, dx;
  TestTensor<Exec, compute_t<T>> rstd, dweight;

  Tensors(Shape s, bool fused, unsigned seed = 20260101) {
    std::mt19937 generator(seed);
    auto rows = [&] { return TestTensor<Exec, T>({s.rows, s.hidden}); };
    x = rows().random(generator);
    if (fused) {
      residual = rows().random(generator, 3.0);
      sum = rows();
      dsum = rows().random(generator);
    }
    weight = TestTensor<Exec, T>({s.hidden}).random(generator, 0.3, 1.0);
    dy = rows().random(generator);
    y = rows();
    dx = rows();
    rstd = TestTensor<Exec, compute_t<T>>({s.rows});
    dweight = TestTensor<Exec, compute_t<T>>({s.hidden}).random(generator);
  }

  template <class Real, class Store>
  auto forward() const {
    return ref::rms_norm_forward<Real, Store>(x.template read<Real>(), residual.template read<Real>(),
                                              weight.template read<Real>(), eps);
  }
  static constexpr double eps = 1e-5;
};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const bool fused : {false, true}) {
      Tensors<T> t(shape, fused);
      const auto expected = t.template forward<oracle_t<T>, oracle_t<T>>();
      const auto naive = t.template forward<compute_t<T>, T>();
      const Impl::RmsNormForward problem{t.x.ref(), t.residual.ref(), t.weight.ref(), t.sum.ref(),
                                         t.y.ref(), t.rstd.ref(),     t.eps};
      std::vector<Output*> outputs{&t.y, &t.rstd};
      if (fused) outputs.push_back(&t.sum);
      test_every_kernel(problem, outputs, [&](const std::string&) {
        check_close("y", t.y, expected.y, naive.y);
        check_close("rstd", t.rstd, expected.rstd, naive.rstd);
        if (fused) check_close("sum", t.sum, expected.sum, naive.sum);
      });
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const Shape shape : shapes)
    for (const bool fused : {false, true}) {
      Tensors<T> t(shape, fused);
      const auto saved = t.template forward<oracle_t<T>, oracle_t<T>>();
      t.rstd.fill([&](std::size_t i) { return static_cast<compute_t<T>>(saved.rstd.values()[i]); });
      const auto initial = t.dweight.template read<oracle_t<T>>();
      auto gradients = [&]<class Real, class Store>() {
        auto g = ref::rms_norm_backward<Real, Store>(t.x.template read<Real>(), t.weight.template read<Real>(),
                                                     t.rstd.template read<Real>(), t.dy.template read<Real>(),
                                                     t.dsum.template read<Real>());
        for (std::size_t i = 0; i < initial.values().size(); ++i)
          g.dweight.values()[i] += Real(initial.values()[i]);
        return g;
      };
      const auto expected = gradients.template operator()<oracle_t<T>, oracle_t<T>>();
      const auto naive = gradients.template operator()<compute_t<T>, T>();
      const Impl::RmsNormBackward problem{t.x.ref(),    t.weight.ref(), t.rstd.ref(),   t.dy.ref(),
                                          t.dsum.ref(), t.dx.ref(),     t.dweight.ref()};
      test_every_kernel(problem, {&t.dx, &t.dweight}, [&](const std::string&) {
        check_close("dx", t.dx, expected.dx, naive.dx);
        check_close("dweight", t.dweight, expected.dweight, naive.dweight);
      });
    }
}

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  HostTensor<double> x({1, 2}), weight({2});
  x(0, 0) = 3;
  x(0, 1) = 4;
  weight(0) = 2;
  weight(1) = 10;
  const auto r = ref::rms_norm_forward<double, double>(x, {}, weight, 0.0);
  BOOST_TEST(r.rstd(0) == 1 / std::sqrt(12.5));
  BOOST_TEST(r.y(0, 0) == 6 / std::sqrt(12.5), boost::test_tools::tolerance(1e-15));
  BOOST_TEST(r.y(0, 1) == 40 / std::sqrt(12.5), boost::test_tools::tolerance(1e-15));
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  TestTensor<Exec, float> x({3, 5}), weight({5}), y({3, 4}), rstd({3});
  check_error<DimensionMismatch>(
      [&] { rms_norm_forward(Exec(), x.view<2>(), weight.view<1>(), y.view<2>(), rstd.view<1>()); },
      "kformer::rms_norm_forward: extents do not match: x[3,5] weight[5] y[3,4] rstd[3]; expected y to have "
      "the extents of x");
  TestTensor<Exec, bf16> y16({3, 5});
  check_error<DimensionMismatch>(
      [&] { rms_norm_forward(Exec(), x.view<2>(), weight.view<1>(), y16.view<2>(), rstd.view<1>()); },
      "kformer::rms_norm_forward: y is stored as bf16, expected f32: x[3,5] weight[5] y[3,5] rstd[3]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
