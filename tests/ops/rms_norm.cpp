// SPDX-License-Identifier: MIT
#include "kformer/ops/rms_norm.hpp"

#include <numeric>

#include "ops/rms_norm/reference.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"

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

// The gradient of Σ y · dy + Σ sum · dsum, in double, along a random direction of x, residual and weight
// together.
BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  for (const bool fused : {false, true}) {
    const Shape shape{7, 33};
    Tensors<double> t(shape, fused), direction(shape, fused, 7);
    const auto x0 = t.x.read<double>(), w0 = t.weight.read<double>(), r0 = t.residual.read<double>();
    const auto ux = direction.x.read<double>(), uw = direction.weight.read<double>(),
               ur = direction.residual.read<double>();
    const auto dy = t.dy.read<double>(), dsum = t.dsum.read<double>();
    const auto dot = [](const HostTensor<double>& a, const HostTensor<double>& b) {
      return std::inner_product(a.values().begin(), a.values().end(), b.values().begin(), 0.0);
    };
    const auto forward = [&](double step) {
      const auto moved = [&](const HostTensor<double>& a, const HostTensor<double>& u) {
        return [&, step](std::size_t i) { return a.values()[i] + step * u.values()[i]; };
      };
      t.x.fill(moved(x0, ux));
      t.weight.fill(moved(w0, uw));
      if (fused) {
        t.residual.fill(moved(r0, ur));
        rms_norm_residual_forward(Exec(), t.x.view<2>(), t.residual.view<2>(), t.weight.view<1>(),
                                  t.sum.view<2>(), t.y.view<2>(), t.rstd.view<1>());
        Exec().fence("kformer::Testing");
        return dot(t.y.read<double>(), dy) + dot(t.sum.read<double>(), dsum);
      }
      rms_norm_forward(Exec(), t.x.view<2>(), t.weight.view<1>(), t.y.view<2>(), t.rstd.view<1>());
      Exec().fence("kformer::Testing");
      return dot(t.y.read<double>(), dy);
    };
    forward(0);
    t.dweight.fill([](std::size_t) { return 0.0; });
    Kokkos::View<std::byte*, Exec::memory_space> workspace(
        "kformer::Testing::workspace",
        rms_norm_backward_workspace_bytes<double>(Exec(), shape.rows, shape.hidden));
    double analytic = 0;
    if (fused) {
      rms_norm_residual_backward(Exec(), t.sum.view<2>(), t.weight.view<1>(), t.rstd.view<1>(), t.dy.view<2>(),
                                 t.dsum.view<2>(), t.dx.view<2>(), t.dweight.view<1>(), workspace);
      Exec().fence("kformer::Testing");
      analytic = dot(t.dx.read<double>(), ur);
    } else {
      rms_norm_backward(Exec(), t.x.view<2>(), t.weight.view<1>(), t.rstd.view<1>(), t.dy.view<2>(),
                        t.dx.view<2>(), t.dweight.view<1>(), workspace);
      Exec().fence("kformer::Testing");
    }
    analytic += dot(t.dx.read<double>(), ux) + dot(t.dweight.read<double>(), uw);
    check_gradient(fused ? "rms_norm_residual" : "rms_norm", forward, analytic);
  }
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
