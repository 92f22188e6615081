// SPDX-License-Identifier: MIT
#include "kformer/ops/rms_norm.hpp"

#include <numeric>
#include <optional>

#include "kformer/ops/impl/launch.hpp"
#include "ops/rms_norm_cases.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/large_matrix.hpp"

namespace kformer::Testing {
using namespace rms_norm_cases;

BOOST_AUTO_TEST_SUITE(rms_norm)

// Odd columns leave a part of a vector; 2100 rows are cut into more blocks than 65.
const std::vector<RowShape> shapes{{1, 1},   {3, 5},  {9, 15},   {20, 17},  {75, 113},
                                   {65, 64}, {6, 71}, {2, 1025}, {2100, 9}, {0, 8}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, Scalars) {
  for (const RowShape shape : shapes)
    for (const bool fused : {false, true}) test_forward<T>(shape, fused, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE(the_norm_is_that_of_the_sum_as_stored) { test_norm_of_the_stored_sum(2, every_kernel); }

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, Scalars) {
  for (const RowShape shape : shapes)
    for (const bool fused : {false, true}) test_backward<T>(shape, fused, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const RowShape shape{draw.any(1, 20), draw.any(1, 150)};
    const bool fused = draw.one_in(2);
    test_forward<T>(shape, fused, draw.rows(), every_kernel, draw.seed());
    test_backward<T>(shape, fused, draw.rows(), every_kernel, draw.seed());
  });
}

using WideScalars = std::tuple<float, bf16, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_of_any_magnitude_are_normalised, T, WideScalars) {
  // 2^±67 is about 1e±20, 2^−100 about 1e−30, 2^±665 about 1e±200.
  const std::vector<int> exponents = std::is_same_v<T, double> ? std::vector<int>{665, -665, 1000, -500}
                                                               : std::vector<int>{67, -67, -100, 100};
  for (const int exponent : exponents)
    for (const bool fused : {false, true}) BOOST_TEST_CONTEXT("2^" << exponent << (fused ? ", fused" : "")) {
        test_magnitude<T>({3, 37}, exponent, fused, Rows::strided, every_kernel);
      }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(eps_is_scaled_with_its_row, T, WideScalars) {
  test_large_eps<T>({3, 37}, Rows::strided, every_kernel);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_without_a_norm_have_their_natural_result, T, Scalars) {
  test_rows_without_a_norm<T>(37, Rows::strided, every_kernel);
}

template <class T>
std::vector<unsigned char> bits_of(const TestTensor<Exec, T>& t) {
  Exec().fence("kformer::Testing::rms_norm");
  return t.bits();
}

/// Heads first, first + 1, … of tokens, in rows with others, with `gap` elements between them.
template <class T>
auto heads_in(const TestTensor<Exec, T>& rows, std::size_t first, std::size_t count, std::size_t dim,
              std::size_t gap = 0) {
  const auto v = rows.template view<2>();
  return Kokkos::View<T***, Kokkos::LayoutStride, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
      v.data() + first * (dim + gap), Kokkos::LayoutStride(v.extent(0), v.stride(0), count, dim + gap, dim, 1));
}

// The heads of tokens in one launch against a launch for each head.
BOOST_AUTO_TEST_CASE_TEMPLATE(heads_of_tokens_are_normalised_in_one_launch, T, Scalars) {
  using C = compute_t<T>;
  constexpr std::size_t first = 2, count = 3;
  for (const char* kernel : {"", "rms_norm:kokkos", "rms_norm:reference"})
    for (const auto& [tokens, dim] : {std::pair<std::int64_t, std::int64_t>{7, 13}, {1, 64}, {150, 24}, {0, 8}})
      BOOST_TEST_CONTEXT(kernel << ", " << tokens << " tokens of " << dim) {
        if (!kformer::Impl::is_host_space<Exec> && std::string(kernel).ends_with("reference")) continue;
        std::optional<ForcedKernels> forced;
        if (*kernel) forced.emplace(kernel);
        // Every operand has another distance between its heads.
        constexpr std::size_t y_gap = 1, dy_gap = 2, dx_gap = 3;
        const std::int64_t width = 6 * (dim + 3);
        const auto d = static_cast<std::size_t>(dim);
        std::mt19937 generator(20261122);
        const auto random = [&] { return TestTensor<Exec, T>({tokens, width}).random(generator); };
        const TestTensor<Exec, T> x = random(), dy = random(),
                                  weight = TestTensor<Exec, T>({dim}).random(generator);
        const TestTensor<Exec, T> y({tokens, width}), y_each({tokens, width}), dx({tokens, width}),
            dx_each({tokens, width});
        const TestTensor<Exec, C> rstd({tokens, static_cast<std::int64_t>(count)}, Rows::packed),
            rstd_each({tokens});
        TestTensor<Exec, C> dweight({dim}), dweight_each({dim});
        for (auto* t : {&dweight, &dweight_each}) t->fill([](std::size_t) { return C(0); });
        const std::size_t bytes = std::max(
            rms_norm_backward_workspace_bytes<T>(Exec(), tokens, static_cast<std::int64_t>(count), dim),
            rms_norm_backward_workspace_bytes<T>(Exec(), tokens, dim));
        const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", bytes);

        rms_norm_forward(Exec(), heads_in(x, first, count, d), weight.template view<1>(),
                         heads_in(y, first, count, d, y_gap), rstd.template view<2>());
        rms_norm_backward(Exec(),
                          RmsNormBackwardOperands{.x = heads_in(x, first, count, d),
                                                  .weight = weight.template view<1>(),
                                                  .rstd = rstd.template view<2>(),
                                                  .dy = heads_in(dy, first, count, d, dy_gap),
                                                  .dx = heads_in(dx, first, count, d, dx_gap),
                                                  .dweight = dweight.template view<1>()},
                          workspace);
        for (std::size_t h = first; h < first + count; ++h) {
          const auto head = [&](const TestTensor<Exec, T>& t, std::size_t gap = 0) {
            const std::size_t begin = h * (d + gap);
            return Kokkos::subview(t.template view<2>(), Kokkos::ALL, std::pair(begin, begin + d));
          };
          rms_norm_forward(Exec(), head(x), weight.template view<1>(), head(y_each, y_gap),
                           rstd_each.template view<1>());
          rms_norm_backward(Exec(),
                            RmsNormBackwardOperands{.x = head(x),
                                                    .weight = weight.template view<1>(),
                                                    .rstd = rstd_each.template view<1>(),
                                                    .dy = head(dy, dy_gap),
                                                    .dx = head(dx_each, dx_gap),
                                                    .dweight = dweight_each.template view<1>()},
                            workspace);
        }
        BOOST_TEST((bits_of(y) == bits_of(y_each)));
        BOOST_TEST((bits_of(dx) == bits_of(dx_each)));
        const auto one = dweight.template read<double>().values(),
                   each = dweight_each.template read<double>().values();
        // Sums of as many products, each at most about 16, in another order.
        const double limit = 16 * static_cast<double>(tokens) * static_cast<double>(count) *
                             static_cast<double>(std::numeric_limits<C>::epsilon());
        for (std::size_t i = 0; i < one.size(); ++i) BOOST_TEST(std::abs(one[i] - each[i]) <= limit);
      }
}

/// Queries and keys side by side in the rows of a projection, of which there are others besides.
template <class T>
struct QueriesAndKeys {
  static constexpr std::size_t q_heads = 3, k_heads = 2;
  std::size_t dim;
  TestTensor<Exec, T> x, y, q_weight, k_weight;
  TestTensor<Exec, compute_t<T>> q_rstd, k_rstd;

  QueriesAndKeys(std::int64_t tokens, std::int64_t head_dim) : dim(static_cast<std::size_t>(head_dim)) {
    std::mt19937 generator(20261122);
    for (auto* rows : {&x, &y}) *rows = TestTensor<Exec, T>({tokens, 7 * head_dim});
    for (auto* weight : {&q_weight, &k_weight})
      *weight = TestTensor<Exec, T>({head_dim}).random(generator, 0.3, 1.0);
    x.random(generator);
    q_rstd = TestTensor<Exec, compute_t<T>>({tokens, std::int64_t(q_heads)}, Rows::packed);
    k_rstd = TestTensor<Exec, compute_t<T>>({tokens, std::int64_t(k_heads)}, Rows::packed);
  }
  auto queries(const TestTensor<Exec, T>& rows) const { return heads_in(rows, 1, q_heads, dim); }
  auto keys(const TestTensor<Exec, T>& rows) const { return heads_in(rows, 1 + q_heads, k_heads, dim); }

  Impl::QkNormForward problem() const {
    return {{tensor_ref(queries(x)), {}, q_weight.ref(), {}, tensor_ref(queries(y)), q_rstd.ref(), eps},
            {tensor_ref(keys(x)), {}, k_weight.ref(), {}, tensor_ref(keys(y)), k_rstd.ref(), eps}};
  }
  void forward_apart() const {
    rms_norm_forward(Exec(), queries(x), q_weight.template view<1>(), queries(y), q_rstd.template view<2>(),
                     {.eps = eps});
    rms_norm_forward(Exec(), keys(x), k_weight.template view<1>(), keys(y), k_rstd.template view<2>(),
                     {.eps = eps});
  }
  static constexpr double eps = 1e-3;
};

// Some splits between queries and keys lie inside a piece of work of the SIMD kernels, one between two pieces.
BOOST_AUTO_TEST_CASE_TEMPLATE(queries_and_keys_in_one_launch_have_the_bits_of_two, T, Scalars) {
  for (const auto& [tokens, dim] :
       {std::pair<std::int64_t, std::int64_t>{7, 13}, {1, 64}, {256, 64}, {331, 24}, {0, 8}}) {
    QueriesAndKeys<T> together(tokens, dim);
    test_every_kernel(together.problem(), {&together.y, &together.q_rstd, &together.k_rstd},
                      [&](const std::string& kernel) {
                        const ForcedKernels forced("rms_norm:" + kernel);
                        const QueriesAndKeys<T> apart(tokens, dim);
                        apart.forward_apart();
                        BOOST_TEST((bits_of(together.y) == bits_of(apart.y)));
                        BOOST_TEST((bits_of(together.q_rstd) == bits_of(apart.q_rstd)));
                        BOOST_TEST((bits_of(together.k_rstd) == bits_of(apart.k_rstd)));
                      });
  }
}

BOOST_AUTO_TEST_CASE(errors_of_queries_and_keys_name_the_side) {
  const QueriesAndKeys<float> t(4, 3);
  const auto check = [&](auto change, const std::string& error) {
    Impl::QkNormForward problem = t.problem();
    change(problem);
    check_error<DimensionMismatch>([&] { problem.check(); }, "kformer::qk_norm_forward: " + error);
  };
  const std::string rest = " q_weight[3] k_weight[3] q_out[4,3,3] k_out[4,2,3] q_rstd[4,3] k_rstd[4,2]";
  check([](auto& p) { p.k.x.extent[0] = 5; }, "extents do not match: q[4,3,3] k[5,2,3]" + rest +
                                                  "; expected k to have the extents of q except for the heads");
  check([](auto& p) { p.k.rstd.stride[0] = 3; },
        "extents do not match: q[4,3,3] k[4,2,3]" + rest +
            "; expected k_rstd to be dense, the heads of each token behind those of the one before");
  check([](auto& p) { p.k.y = p.q.y, p.k.y.extent[1] = 2; },
        "q_out shares memory with k_out; pass a separate View: q[4,3,3] k[4,2,3]" + rest);
}

BOOST_AUTO_TEST_CASE(statistics_of_heads_are_dense) {
  const TestTensor<Exec, float> x({4, 6}), weight({3}), y({4, 6}), rstd({4, 5}, Rows::packed);
  const auto two = Kokkos::subview(rstd.view<2>(), Kokkos::ALL, std::pair<std::size_t, std::size_t>(0, 2));
  check_error<DimensionMismatch>(
      [&] { rms_norm_forward(Exec(), heads_in(x, 0, 2, 3), weight.view<1>(), heads_in(y, 0, 2, 3), two); },
      "kformer::rms_norm_forward: extents do not match: x[4,2,3] weight[3] y[4,2,3] rstd[4,2]; expected rstd "
      "to be "
      "dense, the heads of each token behind those of the one before");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(outputs_may_be_inputs, T, Scalars) {
  const RowShape shape{5, 70};
  const auto v = [](const TestTensor<Exec, T>& t) { return t.template view<2>(); };
  with_each_kernel(&Impl::RmsNormForward::x, dtype_of<T>, [&] {
    const Tensors<T> apart(shape, true), plain(shape, true);
    const auto weight = apart.weight.template view<1>();
    const auto rstd = apart.rstd.template view<1>();
    rms_norm_forward(Exec(), v(plain.x), weight, v(plain.y), rstd);
    rms_norm_forward(Exec(), v(plain.x), weight, v(plain.x), rstd);
    BOOST_TEST((bits_of(plain.x) == bits_of(plain.y)));
    rms_norm_residual_forward(Exec(), RmsNormResidualForwardOperands{.x = v(apart.x),
                                                                     .residual = v(apart.residual),
                                                                     .weight = weight,
                                                                     .sum = v(apart.sum),
                                                                     .y = v(apart.y),
                                                                     .rstd = rstd});
    using Member = TestTensor<Exec, T> Tensors<T>::*;
    for (const Member sum : {&Tensors<T>::x, &Tensors<T>::residual}) {
      const Tensors<T> t(shape, true);
      rms_norm_residual_forward(Exec(), RmsNormResidualForwardOperands{.x = v(t.x),
                                                                       .residual = v(t.residual),
                                                                       .weight = weight,
                                                                       .sum = v(t.*sum),
                                                                       .y = v(t.y),
                                                                       .rstd = rstd});
      BOOST_TEST((bits_of(t.*sum) == bits_of(apart.sum)));
      BOOST_TEST((bits_of(t.y) == bits_of(apart.y)));
    }
    const Kokkos::View<std::byte*, Exec::memory_space> workspace(
        "kformer::Testing::workspace", rms_norm_backward_workspace_bytes<T>(Exec(), shape.rows, shape.hidden));
    const auto backward = [&](const Tensors<T>& t, const TestTensor<Exec, T>& dx) {
      rms_norm_residual_backward(Exec(),
                                 RmsNormResidualBackwardOperands{.sum = v(t.x),
                                                                 .weight = weight,
                                                                 .rstd = rstd,
                                                                 .dy = v(t.dy),
                                                                 .dsum = v(t.dsum),
                                                                 .dx = v(dx),
                                                                 .dweight = t.dweight.template view<1>()},
                                 workspace);
      return bits_of(dx);
    };
    const Tensors<T> first(shape, true);
    const auto expected = backward(first, first.dx);
    for (const Member dx : {&Tensors<T>::dy, &Tensors<T>::dsum}) {
      const Tensors<T> t(shape, true);
      BOOST_TEST((backward(t, t.*dx) == expected));
      BOOST_TEST((bits_of(t.dweight) == bits_of(first.dweight)));
    }
  });
}

// Beyond the caches outputs are written in another way.
BOOST_AUTO_TEST_CASE_TEMPLATE(large_arrays_have_the_bits_of_their_rows, T, Scalars) {
  constexpr std::int64_t rows = 1080, row_bytes = 16384, columns = large_columns<T>(row_bytes);
  const auto matrix = [](std::uint32_t seed) { return large_matrix<T>(rows, row_bytes, seed); };
  const auto x = matrix(1), residual = matrix(2), dy = matrix(3), dsum = matrix(4);
  const auto weight = Kokkos::subview(matrix(5), 0, std::pair(std::int64_t(0), columns));
  const Kokkos::View<compute_t<T>*, Exec::memory_space> rstd("rstd", rows), dweight("dweight", columns);
  const Kokkos::View<std::byte*, Exec::memory_space> workspace(
      "kformer::Testing::workspace", rms_norm_backward_workspace_bytes<T>(Exec(), rows, columns));
  struct Outputs {
    LargeMatrix<T> y, sum, fused_y, dx, fused_dx;
  };
  const auto zeros = [] { return large_zeros<T>(rows, row_bytes); };
  const auto outputs = [&] { return Outputs{zeros(), zeros(), zeros(), zeros(), zeros()}; };
  const auto run = [&](const Outputs& out, std::int64_t first, std::int64_t end) {
    const auto part = [&](const LargeMatrix<T>& m) { return rows_of(m, first, end); };
    const auto scale = Kokkos::subview(rstd, std::pair(first, end));
    rms_norm_forward(Exec(), part(x), weight, part(out.y), scale);
    rms_norm_residual_forward(Exec(), RmsNormResidualForwardOperands{.x = part(x),
                                                                     .residual = part(residual),
                                                                     .weight = weight,
                                                                     .sum = part(out.sum),
                                                                     .y = part(out.fused_y),
                                                                     .rstd = scale});
    rms_norm_backward(Exec(),
                      RmsNormBackwardOperands{.x = part(x),
                                              .weight = weight,
                                              .rstd = scale,
                                              .dy = part(dy),
                                              .dx = part(out.dx),
                                              .dweight = dweight},
                      workspace);
    rms_norm_residual_backward(Exec(),
                               RmsNormResidualBackwardOperands{.sum = part(x),
                                                               .weight = weight,
                                                               .rstd = scale,
                                                               .dy = part(dy),
                                                               .dsum = part(dsum),
                                                               .dx = part(out.fused_dx),
                                                               .dweight = dweight},
                               workspace);
  };
  with_each_kernel(&Impl::RmsNormForward::x, dtype_of<T>, [&] {
    const Outputs whole = outputs(), by_rows = outputs();
    run(whole, 0, rows);
    constexpr std::int64_t few = rows / 4;
    for (std::int64_t first = 0; first < rows; first += few) run(by_rows, first, first + few);
    for (const auto output : {&Outputs::y, &Outputs::sum, &Outputs::fused_y, &Outputs::dx, &Outputs::fused_dx})
      BOOST_TEST(same_bits(whole.*output, by_rows.*output));
  });
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
    const RowShape shape{7, 33};
    Tensors<double> t(shape, fused), direction(shape, fused, Rows::strided, 7);
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
        rms_norm_residual_forward(Exec(), RmsNormResidualForwardOperands{.x = t.x.view<2>(),
                                                                         .residual = t.residual.view<2>(),
                                                                         .weight = t.weight.view<1>(),
                                                                         .sum = t.sum.view<2>(),
                                                                         .y = t.y.view<2>(),
                                                                         .rstd = t.rstd.view<1>()});
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
      rms_norm_residual_backward(Exec(),
                                 RmsNormResidualBackwardOperands{.sum = t.sum.view<2>(),
                                                                 .weight = t.weight.view<1>(),
                                                                 .rstd = t.rstd.view<1>(),
                                                                 .dy = t.dy.view<2>(),
                                                                 .dsum = t.dsum.view<2>(),
                                                                 .dx = t.dx.view<2>(),
                                                                 .dweight = t.dweight.view<1>()},
                                 workspace);
      Exec().fence("kformer::Testing");
      analytic = dot(t.dx.read<double>(), ur);
    } else {
      rms_norm_backward(Exec(),
                        RmsNormBackwardOperands{.x = t.x.view<2>(),
                                                .weight = t.weight.view<1>(),
                                                .rstd = t.rstd.view<1>(),
                                                .dy = t.dy.view<2>(),
                                                .dx = t.dx.view<2>(),
                                                .dweight = t.dweight.view<1>()},
                        workspace);
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
      [&] { Impl::RmsNormForward{x.ref(), {}, weight.ref(), {}, y16.ref(), rstd.ref(), 1e-5}.check(); },
      "kformer::rms_norm_forward: y is stored as bf16, expected f32: x[3,5] weight[5] y[3,5] rstd[3]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
