// SPDX-License-Identifier: MIT
// Flash attention with functors of the user's, as a stranger would write them.
#include "kformer/ops/attention_functors.hpp"

#include "ops/functor_cases.hpp"
#include "support/errors.hpp"
#include "support/gradient_check.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {

double relative_score(std::int64_t distance) { return 1.5 - 0.25 * static_cast<double>(distance % 8); }
int document_of(std::int64_t token) { return static_cast<int>(token / 20); }

/// A learned score per distance, as of T5: constant here.
struct RelativePosition {
  Kokkos::View<const double*, Exec::memory_space> by_distance;

  template <class C>
  KOKKOS_FUNCTION C operator()(C score, AttentionIndex at) const {
    return score + static_cast<C>(by_distance(Kokkos::abs(at.query - at.key)));
  }
  template <class C>
  KOKKOS_FUNCTION C derivative(C, AttentionIndex) const {
    return C(1);
  }
};

/// Tokens see their own document only.
struct SameDocument {
  Kokkos::View<const int*, Exec::memory_space> document;

  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const { return document(at.query) == document(at.key); }
};

/// Both a mask and a score, with a derivative that depends on the score and the head.
struct SquashedStripes {
  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const { return (at.query + at.key + at.batch) % 3 != 0; }
  KOKKOS_FUNCTION double operator()(double score, AttentionIndex at) const {
    return (1.0 + static_cast<double>(at.head)) * Kokkos::sin(score);
  }
  KOKKOS_FUNCTION double derivative(double score, AttentionIndex at) const {
    return (1.0 + static_cast<double>(at.head)) * Kokkos::cos(score);
  }
};

/// A score that cannot go backward.
struct ForwardOnly {
  KOKKOS_FUNCTION float operator()(float score, AttentionIndex) const { return 2 * score; }
};
static_assert(AttentionFunctor<ForwardOnly, float> && !DifferentiableAttentionScore<ForwardOnly, float>);
/// Invalid functors: the message names the fault of each.
struct NotConst {
  KOKKOS_FUNCTION bool operator()(AttentionIndex) { return true; }
};
struct KeysNotConst {
  KOKKOS_FUNCTION KeyRange keys(AttentionRows) { return {0, 0}; }
};
static_assert(Impl::HasCall<NotConst, float> && !AttentionFunctor<NotConst, float>);
static_assert(Impl::HasKeys<KeysNotConst> && !AttentionFunctor<KeysNotConst, float>);
static_assert(!AttentionFunctor<AttentionOptions, float> && !AttentionFunctor<AttentionExtras<Exec>, float>);

BOOST_AUTO_TEST_SUITE(attention_functors)

using Case = AttentionCase;

RelativePosition relative_position(std::int64_t length) {
  const Kokkos::View<double*, Exec::memory_space> table("table", static_cast<std::size_t>(length));
  const auto host = Kokkos::create_mirror_view(table);
  for (std::int64_t n = 0; n < length; ++n) host(n) = relative_score(n);
  Kokkos::deep_copy(table, host);
  return {table};
}

SameDocument same_document(std::int64_t length) {
  const Kokkos::View<int*, Exec::memory_space> document("document", static_cast<std::size_t>(length));
  const auto host = Kokkos::create_mirror_view(document);
  for (std::int64_t n = 0; n < length; ++n) host(n) = document_of(n);
  Kokkos::deep_copy(document, host);
  return {document};
}

BOOST_AUTO_TEST_CASE_TEMPLATE(functors_match_a_bias_that_says_the_same, T, Scalars) {
  const auto distance = [](std::int64_t i, std::int64_t j) { return relative_score(std::abs(i - j)); };
  const auto same = [](std::int64_t i, std::int64_t j) {
    return document_of(i) == document_of(j) ? 0 : -std::numeric_limits<double>::infinity();
  };
  for (const Case& c : {Case{2, 113, 113, 4, 2, 8, 16}.causal(), Case{2, 75, 113, 4, 1, 24, 8}.window(30)}) {
    check_against_bias<T>(c, relative_position(c.kv_len), distance);
    check_against_bias<T>(c, same_document(c.kv_len), same);
    check_against_bias<T>(c.softcap(2), same_document(c.kv_len), same);
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(functors_and_extras_work_together, T, Scalars) {
  const auto distance = [](std::int64_t i, std::int64_t j) { return relative_score(std::abs(i - j)); };
  const auto same = [](std::int64_t i, std::int64_t j) {
    return document_of(i) == document_of(j) ? 0 : -std::numeric_limits<double>::infinity();
  };
  const Case plain{1, 75, 113, 4, 2, 8, 16}, several{2, 75, 113, 4, 2, 8, 16};
  for (const Case& c :
       {several.alibi(), several.sinks(), several.bias(Bias::full), several.bias(Bias::queries_and_keys),
        several.blocks(16, 32), plain.packed({30, 1, 70}, {40, 5, 68}),
        plain.packed({33, 80}, {33, 80}).causal().sinks(),
        several.causal().softcap(2).alibi().sinks().bias(Bias::full)}) {
    check_against_bias<T>(c, relative_position(200), distance);
    check_against_bias<T>(c, same_document(200), same);
  }
}

template <class F>
void check_gradients(const Case& c, const F& functor) {
  AttentionTensors<double> t(c);
  const AttentionTensors<double> along(c, Rows::strided, 7);
  const auto loss = [&](double h) {
    AttentionTensors<double> moved(c);
    const auto move = [h](TestTensor<Exec, double>& x, const TestTensor<Exec, double>& direction) {
      const auto from = x.read<double>(), by = direction.read<double>();
      x.fill([&](std::size_t i) { return from.values()[i] + h * by.values()[i]; });
    };
    move(moved.q, along.q);
    move(moved.k, along.k);
    move(moved.v, along.v);
    if (c.bias_kind != Bias::none) move(moved.bias, along.bias);
    run_forward(moved, functor);
    const auto out = moved.out.read<double>(), weights = t.dout.read<double>();
    return std::inner_product(out.values().begin(), out.values().end(), weights.values().begin(), 0.0);
  };
  const auto along_direction = [](const TestTensor<Exec, double>& g, const TestTensor<Exec, double>& d) {
    const auto a = g.read<double>(), b = d.read<double>();
    return std::inner_product(a.values().begin(), a.values().end(), b.values().begin(), 0.0);
  };
  with_each_kernel([&] {
    run_forward(t, functor);
    run_backward(t, functor);
    double expected =
        along_direction(t.dq, along.q) + along_direction(t.dk, along.k) + along_direction(t.dv, along.v);
    if (c.bias_kind != Bias::none) expected += along_direction(t.dbias, along.bias);
    check_gradient("attention with a functor", loss, expected);
  });
}

BOOST_AUTO_TEST_CASE(gradients_match_finite_differences) {
  const Case c{2, 70, 75, 4, 2, 5, 3};
  check_gradients(c, relative_position(75));
  check_gradients(c.causal(), same_document(75));
  check_gradients(c, SquashedStripes{});
  check_gradients(c.causal().window(20).softcap(0.7), SquashedStripes{});
  check_gradients(c.causal().softcap(0.7).alibi().sinks(), SquashedStripes{});
}

BOOST_AUTO_TEST_CASE(the_gradient_of_a_bias_passes_through_the_functor) {
  // A bias without −∞, which finite differences cannot move.
  const Case c{2, 30, 35, 2, 1, 5, 3};
  const auto with_bias = [&](double h) {
    AttentionTensors<double> t(c);
    t.c.bias_kind = Bias::full;
    t.bias = TestTensor<Exec, double>({2, 2, 30, 35});
    t.dbias = TestTensor<Exec, double>({2, 2, 30, 35});
    t.bias.fill([h](std::size_t n) { return std::sin(double(n)) + h * std::cos(3.0 * double(n)); });
    run_forward(t, SquashedStripes{});
    return t;
  };
  const auto t = with_bias(0);
  with_each_kernel([&] { run_backward(t, SquashedStripes{}); });
  const auto dbias = t.dbias.read<double>(), weights = t.dout.read<double>();
  double expected = 0;
  for (std::size_t n = 0; n < dbias.values().size(); ++n)
    expected += dbias.values()[n] * std::cos(3.0 * double(n));
  check_gradient(
      "the bias beside a functor",
      [&](double h) {
        const auto out = with_bias(h).out.template read<double>();
        return std::inner_product(out.values().begin(), out.values().end(), weights.values().begin(), 0.0);
      },
      expected);
}

BOOST_AUTO_TEST_CASE(what_a_mask_functor_hides_does_not_leak) {
  // The last document is NaN: no query of another one may notice.
  AttentionTensors<float> t({1, 75, 75, 2, 1, 8, 8});
  const auto poison = [](TestTensor<Exec, float>& x) {
    const auto values = x.read<float>();
    const auto row = static_cast<std::size_t>(values.extent(2) * values.extent(3));
    x.fill([&](std::size_t i) {
      return document_of(static_cast<std::int64_t>(i / row)) == document_of(74) ? std::nanf("")
                                                                                : values.values()[i];
    });
  };
  for (auto* x : {&t.q, &t.k, &t.v, &t.dout}) poison(*x);
  const SameDocument functor = same_document(75);
  with_each_kernel([&] {
    run_forward(t, functor);
    run_backward(t, functor);
    for (const auto* x : {&t.out, &t.dq, &t.dk, &t.dv}) {
      const auto values = x->read<double>();
      for (std::int64_t i = 0; i < 75; ++i)
        BOOST_TEST(std::isfinite(values(0, i, 0, 0)) == (document_of(i) != document_of(74)), "token " << i);
    }
  });
}

BOOST_AUTO_TEST_CASE(a_score_without_derivative_goes_forward) {
  AttentionTensors<float> t({1, 9, 13, 2, 1, 8, 8}), doubled({1, 9, 13, 2, 1, 8, 8});
  run_forward(t, ForwardOnly{});
  attention_forward(Exec(), doubled.q.view<4>(), doubled.k.view<4>(), doubled.v.view<4>(),
                    doubled.out.view<4>(), doubled.lse.view<3>(), {.scale = 2 / std::sqrt(8.0)});
  Exec().fence("kformer::Testing::attention_functors");
  const auto out = t.out.read<double>(), expected = doubled.out.read<double>();
  for (std::size_t i = 0; i < out.values().size(); ++i)
    BOOST_TEST(out.values()[i] == expected.values()[i], boost::test_tools::tolerance(1e-5));
}

BOOST_AUTO_TEST_CASE(the_contract_is_kept) {
  AttentionTensors<float> t({1, 9, 13, 2, 1, 8, 8});
  const SameDocument functor = same_document(13);
  with_each_kernel([&] {
    const auto workspace = workspace_for(t, functor);
    const auto run = [&] {
      attention_forward(Exec(), t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(),
                        functor);
      attention_backward(Exec(), backward_operands(t), functor, {}, {}, {}, workspace);
    };
    run();  // the first use may set up the scratch of the instance
    Exec().fence("kformer::Testing::attention_functors");
    const ToolsRecorder seen;
    run();
    BOOST_TEST(seen.fences().empty());
    BOOST_TEST(seen.allocations().empty());
    BOOST_TEST(seen.kernels().size() >= 4u);
    for (const auto& kernel : seen.kernels()) BOOST_TEST(kernel.label.starts_with("kformer::"), kernel.label);
  });
}

BOOST_AUTO_TEST_CASE(an_overload_uses_the_default_instance) {
  if constexpr (std::is_same_v<Exec, Kokkos::DefaultExecutionSpace>) {
    AttentionTensors<float> t({1, 9, 13, 2, 1, 8, 8});
    const SameDocument functor = same_document(13);
    run_forward(t, functor);
    run_backward(t, functor);
    const std::vector<Output*> all{&t.out, &t.lse, &t.dq, &t.dk, &t.dv};
    std::vector<std::vector<unsigned char>> expected;
    for (Output* x : all) {
      expected.push_back(x->bits());
      x->reset();
    }
    attention_forward(t.q.view<4>(), t.k.view<4>(), t.v.view<4>(), t.out.view<4>(), t.lse.view<3>(), functor);
    const Kokkos::View<std::byte*> workspace(
        "workspace", attention_backward_workspace_bytes(t.c.shape(DType::f32), functor));
    attention_backward(backward_operands(t), functor, {}, {}, {}, workspace);
    Kokkos::fence("kformer::Testing::attention_functors");
    for (std::size_t n = 0; n < all.size(); ++n) BOOST_TEST((all[n]->bits() == expected[n]), "output " << n);
  }
}

struct Choices : KernelObserver {
  std::vector<std::string> seen;
  void chosen(const char* op, const char* function, const char* kernel) override {
    seen.push_back(std::string(op) + " " + function + " " + kernel);
  }
};

BOOST_AUTO_TEST_CASE(choices_are_reported) {
  AttentionTensors<float> t({1, 9, 13, 2, 1, 8, 8});
  const SameDocument functor = same_document(13);
  const auto workspace = workspace_for(t, functor);
  const ForcedKernels portable("attention:kokkos");
  Choices choices;
  KernelObserver* before = set_kernel_observer(&choices);
  run_forward(t, functor);
  run_backward(t, functor, workspace);
  set_kernel_observer(before);
  const std::vector<std::string> expected{"attention attention_forward kokkos",
                                          "attention attention_backward kokkos"};
  BOOST_TEST(choices.seen == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(errors) {
  AttentionTensors<float> t({1, 3, 5, 4, 2, 8, 8});
  const std::string operands = "q[1,3,4,8] k[1,5,2,8] v[1,5,2,8] out[1,3,4,8] lse[1,4,3]";
  const SameDocument functor = same_document(5);
  check_error<DimensionMismatch>([&] { run_backward(t, functor, Workspace{}); },
                                 "kformer::attention_backward: the workspace has 0 bytes, 48 are needed; ask "
                                 "kformer::attention_backward_workspace_bytes: " +
                                     operands + " dout[1,3,4,8] dq[1,3,4,8] dk[1,5,2,8] dv[1,5,2,8]");
  t.c.options.window = -1;
  check_error<NotSupported>([&] { run_forward(t, ForwardOnly{}); },
                            "kformer::attention_forward: window must not be negative, got -1");
  check_error<NotSupported>([&] { run_backward(t, functor, Workspace{}); },
                            "kformer::attention_backward: window must not be negative, got -1");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
