// SPDX-License-Identifier: MIT
// Functors with parameters that learn: the gradients of their scores.
#include "ops/functor_cases.hpp"
#include "support/gradient_check.hpp"

namespace kformer::Testing {

using Table = Kokkos::View<double*, Exec::memory_space>;

/// A learned bias and a learned factor per distance, on the pairs of one document.
struct Learned {
  Table bias, factor, dbias, dfactor;
  Kokkos::View<int****, Kokkos::LayoutRight, Exec::memory_space> calls;

  KOKKOS_FUNCTION static std::int64_t distance(AttentionIndex at) { return Kokkos::abs(at.query - at.key); }

  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const { return at.query / 20 == at.key / 20; }
  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const {
    return {rows.first / 20 * 20, (rows.end - 1) / 20 * 20 + 20};
  }
  template <class C>
  KOKKOS_FUNCTION C operator()(C score, AttentionIndex at) const {
    return static_cast<C>(factor(distance(at))) * score + static_cast<C>(bias(distance(at)));
  }
  template <class C>
  KOKKOS_FUNCTION C derivative(C, AttentionIndex at) const {
    return static_cast<C>(factor(distance(at)));
  }
  template <class C>
  KOKKOS_FUNCTION void gradient(C dscore, C score, AttentionIndex at) const {
    Kokkos::atomic_add(&dbias(distance(at)), static_cast<double>(dscore));
    Kokkos::atomic_add(&dfactor(distance(at)), static_cast<double>(dscore * score));
    Kokkos::atomic_inc(&calls(at.batch, at.head, at.query, at.key));
  }
};

/// `d(Σ out ∘ dout)` per query, without atomics: each (batch, head, query) has its own place.
struct PerQuery {
  Kokkos::View<double***, Kokkos::LayoutRight, Exec::memory_space> sums;

  template <class C>
  KOKKOS_FUNCTION C operator()(C score, AttentionIndex) const {
    return score;
  }
  template <class C>
  KOKKOS_FUNCTION C derivative(C, AttentionIndex) const {
    return C(1);
  }
  template <class C>
  KOKKOS_FUNCTION void gradient(C dscore, C score, AttentionIndex at) const {
    sums(at.batch, at.head, at.query) += static_cast<double>(dscore * score);
  }
};

BOOST_AUTO_TEST_SUITE(attention_functor_gradients)

using Case = AttentionCase;

Table table(const char* name, std::int64_t length, auto value) {
  const Table t(std::string(name), static_cast<std::size_t>(length));
  const auto host = Kokkos::create_mirror_view(t);
  for (std::int64_t n = 0; n < length; ++n) host(n) = value(n);
  Kokkos::deep_copy(t, host);
  return t;
}

/// With parameters at `h` along a direction.
Learned learned(const Case& c, double h = 0) {
  const std::int64_t length = std::max(c.q_len, c.kv_len);
  const auto zero = [](std::int64_t) { return 0.0; };
  return {
      table("bias", length, [h](std::int64_t n) { return std::sin(n) + h * std::cos(2.0 * n); }),
      table("factor", length, [h](std::int64_t n) { return 1 + 0.25 * std::cos(n) + h * std::sin(3.0 * n); }),
      table("dbias", length, zero), table("dfactor", length, zero),
      Kokkos::View<int****, Kokkos::LayoutRight, Exec::memory_space>("calls", c.batch, c.q_heads, c.q_len,
                                                                     c.kv_len)};
}

auto on_host(const auto& view) { return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view); }

const std::vector<Case> cases{Case{2, 70, 75, 4, 2, 5, 3}, Case{1, 75, 75, 4, 1, 8, 8}.causal().sinks(),
                              Case{2, 130, 113, 2, 2, 8, 8}.window(15).softcap(0.7).alibi()};

BOOST_AUTO_TEST_CASE(gradients_of_parameters_match_finite_differences) {
  for (const Case& c : cases) {
    const AttentionTensors<double> t(c);
    const Learned functor = learned(c);
    run_forward(t, functor);
    run_backward(t, functor);
    const auto dbias = on_host(functor.dbias), dfactor = on_host(functor.dfactor);
    double expected = 0;
    for (std::size_t n = 0; n < dbias.size(); ++n)
      expected += dbias(n) * std::cos(2.0 * double(n)) + dfactor(n) * std::sin(3.0 * double(n));
    const auto loss = [&](double h) {
      const AttentionTensors<double> moved(c);
      run_forward(moved, learned(c, h));
      const auto out = moved.out.read<double>(), weights = t.dout.read<double>();
      return std::inner_product(out.values().begin(), out.values().end(), weights.values().begin(), 0.0);
    };
    check_gradient("parameters of a functor", loss, expected);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(each_visible_pair_gets_its_gradient_once, T, Scalars) {
  for (const Case& c : cases) {
    const AttentionTensors<T> t(c);
    const Learned functor = learned(c);
    run_forward(t, functor);
    run_backward(t, functor);
    const auto calls = on_host(functor.calls);
    const Impl::Visibility visible{c.q_len, c.kv_len, c.options.window, c.options.causal};
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.q_heads; ++h)
        for (std::int64_t i = 0; i < c.q_len; ++i)
          for (std::int64_t j = 0; j < c.kv_len; ++j)
            BOOST_TEST_REQUIRE(calls(b, h, i, j) == int(visible.sees(i, j) && i / 20 == j / 20));
  }
}

BOOST_AUTO_TEST_CASE(gradients_of_scores_are_those_of_a_bias) {
  // A bias equal to the functor gets, summed over its diagonals, the same gradient.
  const Case c{2, 75, 90, 4, 2, 8, 16};
  const AttentionTensors<double> t(c);
  AttentionTensors<double> dense(c);
  const Learned functor = learned(c);
  Kokkos::deep_copy(functor.factor, 1.0);
  const auto bias = on_host(functor.bias);
  dense.bias = TestTensor<Exec, double>({1, 1, c.q_len, c.kv_len});
  dense.dbias = TestTensor<Exec, double>({1, 1, c.q_len, c.kv_len});
  dense.bias.fill([&](std::size_t at) {
    const auto i = static_cast<std::int64_t>(at) / c.kv_len, j = static_cast<std::int64_t>(at) % c.kv_len;
    return i / 20 == j / 20 ? bias(std::abs(i - j)) : -std::numeric_limits<double>::infinity();
  });
  run_forward(t, functor);
  run_backward(t, functor);
  attention_forward(Exec(), dense.q.view<4>(), dense.k.view<4>(), dense.v.view<4>(), dense.out.view<4>(),
                    dense.lse.view<3>(), c.options, extras_of(dense));
  const Kokkos::View<std::byte*, Exec::memory_space> workspace(
      "workspace", attention_backward_workspace_bytes(Exec(), c.shape(DType::f64), c.options, extras_of(dense),
                                                      extra_gradients_of(dense)));
  attention_backward(Exec(), backward_operands(dense), c.options, extras_of(dense), extra_gradients_of(dense),
                     workspace);
  Exec().fence("kformer::Testing::attention_functor_gradients");
  std::vector<double> expected(static_cast<std::size_t>(c.kv_len));
  const auto dbias = dense.dbias.read<double>();
  for (std::int64_t i = 0; i < c.q_len; ++i)
    for (std::int64_t j = 0; j < c.kv_len; ++j)
      expected[static_cast<std::size_t>(std::abs(i - j))] += dbias(0, 0, i, j);
  const auto got = on_host(functor.dbias);
  for (std::size_t n = 0; n < expected.size(); ++n) BOOST_TEST(std::abs(got(n) - expected[n]) <= 1e-12);
  BOOST_TEST(std::abs(expected[0]) > 1e-3);
}

BOOST_AUTO_TEST_CASE(sums_per_query_need_no_atomics_on_host_spaces) {
  if constexpr (Impl::is_host_space<Exec>) {
    const Case c{1, 300, 300, 4, 2, 8, 16};
    const AttentionTensors<float> t(c);
    const auto sums = [&] {
      const PerQuery functor{decltype(PerQuery::sums)("sums", c.batch, c.q_heads, c.q_len)};
      run_forward(t, functor);
      run_backward(t, functor);
      return functor.sums;
    };
    const auto first = sums(), second = sums();
    for (std::size_t n = 0; n < first.size(); ++n) BOOST_TEST_REQUIRE(first.data()[n] == second.data()[n]);
  }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
