// SPDX-License-Identifier: MIT
#include "kformer/ops/swiglu_mlp.hpp"

#include "ops/swiglu/reference.hpp"
#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(swiglu_mlp)

struct Shape {
  std::int64_t rows, hidden, intermediate;
};
// None so small that the naive error of a single element decides.
const std::vector<Shape> shapes{{1, 64, 40}, {3, 5, 7}, {17, 33, 20}, {0, 4, 6}, {2, 4, 0}};

/// All arrays of one pass, in the order of the parameters of `swiglu_mlp_backward`.
template <class T>
struct Tensors {
  TestTensor<Exec, T> x, weight_gate_up, weight_down, gate_up, product, y, dy, dproduct, dgate_up, dx;
  TestTensor<Exec, compute_t<T>> dweight_gate_up, dweight_down;

  explicit Tensors(Shape s, unsigned seed = 20260106) {
    std::mt19937 generator(seed);
    auto make = [](std::int64_t rows, std::int64_t columns) { return TestTensor<Exec, T>({rows, columns}); };
    x = make(s.rows, s.hidden).random(generator);
    weight_gate_up = make(2 * s.intermediate, s.hidden).random(generator);
    weight_down = make(s.hidden, s.intermediate).random(generator);
    gate_up = make(s.rows, 2 * s.intermediate);
    product = make(s.rows, s.intermediate);
    y = make(s.rows, s.hidden);
    dy = make(s.rows, s.hidden).random(generator);
    dproduct = make(s.rows, s.intermediate);
    dgate_up = make(s.rows, 2 * s.intermediate);
    dx = make(s.rows, s.hidden);
    using C = compute_t<T>;
    dweight_gate_up = TestTensor<Exec, C>({2 * s.intermediate, s.hidden}).random(generator);
    dweight_down = TestTensor<Exec, C>({s.hidden, s.intermediate}).random(generator);
  }

  void forward() const { forward_into(y); }
  void forward_into(const TestTensor<Exec, T>& out) const {
    swiglu_mlp_forward(Exec(), SwigluMlpForwardOperands{.x = x.template view<2>(),
                                                        .weight_gate_up = weight_gate_up.template view<2>(),
                                                        .weight_down = weight_down.template view<2>(),
                                                        .gate_up = gate_up.template view<2>(),
                                                        .product = product.template view<2>(),
                                                        .y = out.template view<2>()});
    Exec().fence("kformer::Testing::swiglu_mlp");
  }
  void backward() const { backward_into(dproduct, dgate_up, dx); }
  void backward_into(const TestTensor<Exec, T>& dp, const TestTensor<Exec, T>& dgu,
                     const TestTensor<Exec, T>& din) const {
    swiglu_mlp_backward(Exec(), SwigluMlpBackwardOperands{.x = x.template view<2>(),
                                                          .weight_gate_up = weight_gate_up.template view<2>(),
                                                          .weight_down = weight_down.template view<2>(),
                                                          .gate_up = gate_up.template view<2>(),
                                                          .product = product.template view<2>(),
                                                          .dy = dy.template view<2>(),
                                                          .dproduct = dp.template view<2>(),
                                                          .dgate_up = dgu.template view<2>(),
                                                          .dx = din.template view<2>(),
                                                          .dweight_gate_up = dweight_gate_up.template view<2>(),
                                                          .dweight_down = dweight_down.template view<2>()});
    Exec().fence("kformer::Testing::swiglu_mlp");
  }
};

template <class Real>
HostTensor<Real> columns(const HostTensor<Real>& x, std::int64_t begin, std::int64_t end) {
  HostTensor<Real> part({x.extent(0), end - begin});
  for (std::int64_t r = 0; r < x.extent(0); ++r)
    for (std::int64_t c = begin; c < end; ++c) part(r, c - begin) = x(r, c);
  return part;
}

template <class Real>
struct Expected {
  HostTensor<Real> gate_up, product, y, dgate_up, dx, dweight_gate_up, dweight_down;
};

/// The block composed of the references of its parts.
template <class Real, class Store, class T>
Expected<Real> composed(const Tensors<T>& t) {
  const auto x = t.x.template read<Real>(), weight_gate_up = t.weight_gate_up.template read<Real>();
  const auto weight_down = t.weight_down.template read<Real>(), dy = t.dy.template read<Real>();
  const auto rows = x.extent(0), n = weight_down.extent(1);
  Expected<Real> e;
  e.gate_up = ref::linear_forward<Real, Store>(x, weight_gate_up, {}, {});
  const auto gate = columns(e.gate_up, 0, n), up = columns(e.gate_up, n, 2 * n);
  e.product = ref::swiglu_forward<Real, Store>(gate, up);
  e.y = ref::linear_forward<Real, Store>(e.product, weight_down, {}, {});
  const auto dproduct = ref::linear_backward_input<Real, Store>(weight_down, dy);
  const auto d = ref::swiglu_backward<Real, Store>(gate, up, dproduct);
  e.dgate_up = HostTensor<Real>({rows, 2 * n});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < 2 * n; ++c) e.dgate_up(r, c) = c < n ? d.dgate(r, c) : d.dup(r, c - n);
  e.dx = ref::linear_backward_input<Real, Store>(weight_gate_up, e.dgate_up);
  e.dweight_gate_up = t.dweight_gate_up.template read<Real>();
  e.dweight_down = t.dweight_down.template read<Real>();
  const auto add = [](HostTensor<Real>& sum, const HostTensor<Real>& term) {
    for (std::size_t i = 0; i < term.values().size(); ++i) sum.values()[i] += term.values()[i];
  };
  add(e.dweight_gate_up, ref::linear_backward_weight(x, e.dgate_up));
  add(e.dweight_down, ref::linear_backward_weight(e.product, dy));
  return e;
}

template <class T>
void check_block(const Tensors<T>& t) {
  const auto naive = composed<naive_t<T>, T>(t);
  t.forward();
  t.backward();
  check_close("gate_up", t.gate_up, naive.gate_up);
  check_close("product", t.product, naive.product);
  check_close("y", t.y, naive.y);
  check_close("dgate_up", t.dgate_up, naive.dgate_up);
  check_close("dx", t.dx, naive.dx);
  check_close("dweight_gate_up", t.dweight_gate_up, naive.dweight_gate_up);
  check_close("dweight_down", t.dweight_down, naive.dweight_down);
  for (const auto* output : {&t.gate_up, &t.product, &t.y, &t.dproduct, &t.dgate_up, &t.dx})
    BOOST_TEST(output->guards_intact());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(block_matches_the_composed_oracle, T, Scalars) {
  for (const auto& shape : shapes) check_block(Tensors<T>(shape));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    check_block(Tensors<T>({draw.any(1, 20), draw.any(1, 70), draw.any(1, 50)}, draw.seed()));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(buffers_may_be_written_over, T, Scalars) {
  const Tensors<T> apart({9, 12, 7}), t({9, 12, 7}), other({9, 12, 7});
  apart.forward();
  apart.backward();
  t.forward();
  t.backward_into(t.product, t.gate_up, t.dy);
  BOOST_TEST((t.gate_up.bits() == apart.dgate_up.bits()));
  BOOST_TEST((t.dy.bits() == apart.dx.bits()));
  BOOST_TEST((t.dweight_gate_up.bits() == apart.dweight_gate_up.bits()));
  BOOST_TEST((t.dweight_down.bits() == apart.dweight_down.bits()));
  other.forward();
  other.backward_into(other.dproduct, other.dgate_up, other.x);
  BOOST_TEST((other.x.bits() == apart.dx.bits()));
  const Tensors<T> in_place({9, 12, 7});
  in_place.forward_into(in_place.x);
  BOOST_TEST((in_place.x.bits() == apart.y.bits()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_needs_of_the_activations_only_gate_up, T, Scalars) {
  const Tensors<T> kept({9, 12, 7});
  Tensors<T> recomputed({9, 12, 7});
  kept.forward();
  kept.backward();
  recomputed.forward();
  recomputed.product.fill([](std::size_t) { return compute_t<T>(-3); });
  const auto gate_up = recomputed.gate_up.template view<2>();
  swiglu_forward(Exec(), kformer::Impl::gate_half(gate_up), kformer::Impl::up_half(gate_up),
                 recomputed.product.template view<2>());
  recomputed.backward();
  BOOST_TEST((recomputed.dx.bits() == kept.dx.bits()));
  BOOST_TEST((recomputed.dweight_gate_up.bits() == kept.dweight_gate_up.bits()));
  BOOST_TEST((recomputed.dweight_down.bits() == kept.dweight_down.bits()));
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  Tensors<double> t({4, 6, 5});
  for (auto* sum : {&t.dweight_gate_up, &t.dweight_down}) sum->fill([](std::size_t) { return 0; });
  t.forward();
  t.backward();
  std::mt19937 generator(7);
  const auto dy = t.dy.read<double>().values();
  const auto loss = [&] {
    t.forward();
    return dot(t.y.read<double>().values(), dy);
  };
  check_gradient_of("x", t.x, t.dx, generator, loss);
  check_gradient_of("weight_gate_up", t.weight_gate_up, t.dweight_gate_up, generator, loss);
  check_gradient_of("weight_down", t.weight_down, t.dweight_down, generator, loss);
}

BOOST_AUTO_TEST_CASE(errors_name_the_whole_block) {
  Tensors<float> t({3, 5, 7});
  t.weight_gate_up = TestTensor<Exec, float>({13, 5});
  check_error<DimensionMismatch>(
      [&] { t.forward(); },
      "kformer::swiglu_mlp_forward: extents do not match: x[3,5] weight_gate_up[13,5] weight_down[5,7] "
      "gate_up[3,14] "
      "product[3,7] y[3,5]; expected weight_gate_up to be (2 intermediate, hidden) and weight_down (hidden, "
      "intermediate), with the columns of x as hidden");
  Tensors<float> u({3, 5, 7});
  u.product = TestTensor<Exec, float>({3, 8});
  check_error<DimensionMismatch>(
      [&] { u.forward(); },
      "kformer::swiglu_mlp_forward: extents do not match: x[3,5] weight_gate_up[14,5] weight_down[5,7] "
      "gate_up[3,14] "
      "product[3,8] y[3,5]; expected gate_up to be (rows, 2 intermediate) and product (rows, intermediate)");
  Tensors<float> v({3, 5, 7});
  v.dweight_down = TestTensor<Exec, float>({7, 5});
  check_error<DimensionMismatch>([&] { v.backward(); },
                                 "kformer::swiglu_mlp_backward: extents do not match: x[3,5] "
                                 "weight_gate_up[14,5] weight_down[5,7] gate_up[3,14] "
                                 "product[3,7] dy[3,5] dproduct[3,7] dgate_up[3,14] dx[3,5] "
                                 "dweight_gate_up[14,5] dweight_down[7,5]; expected "
                                 "dweight_gate_up and dweight_down to have the extents of the weights");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
