// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <map>

#include "ops/attention_cases.hpp"
#include "ops/linear_cases.hpp"
#include "ops/rms_norm_cases.hpp"
#include "ops/swiglu_cases.hpp"

/// \file
/// How often the tolerance rule rejects what is right: random problems through every kernel. More draws than a test
/// needs, with a table: KFORMER_DRAWS=100000 kformer_tests_openmp --run_test=false_alarms --log_level=message

namespace kformer::Testing {
namespace {

namespace linear = linear_cases;
namespace rms_norm = rms_norm_cases;

/// Of one function in one storage type.
struct Tally {
  std::int64_t tensors = 0, rejected = 0;
  long double share = 0;  ///< the largest of a limit
};

/// Random problems of storage type T, and what the rule says of the kernels' results.
template <class T>
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : m_generator(seed) {}

  void rms_norm() {
    const bool fused = any(0, 1) == 1;
    rms_norm::Tensors<T> t({any(1, 20), any(1, 150)}, fused, m_generator());
    const auto expected = t.template forward<Oracle, Oracle>();
    const auto naive = t.template forward<Naive, T>();
    test_every_kernel(t.forward_problem(), t.forward_outputs(), [&](const std::string&) {
      judge("rms_norm_forward", t.y, expected.y, naive.y);
      judge("rms_norm_forward", t.rstd, expected.rstd, naive.rstd);
    });
    t.rstd.fill([&](std::size_t i) { return static_cast<compute_t<T>>(expected.rstd.values()[i]); });
    t.dweight.fill([](std::size_t) { return 0; });
    const auto gradients = [&]<class Real, class Store>() {
      return ref::rms_norm_backward<Real, Store>(t.x.template read<Real>(), t.weight.template read<Real>(),
                                                 t.rstd.template read<Real>(), t.dy.template read<Real>(),
                                                 t.dsum.template read<Real>());
    };
    const auto exact = gradients.template operator()<Oracle, Oracle>();
    const auto rough = gradients.template operator()<Naive, T>();
    test_every_kernel(t.backward_problem(), {&t.dx, &t.dweight}, [&](const std::string&) {
      judge("rms_norm_backward", t.dx, exact.dx, rough.dx);
      judge("rms_norm_backward", t.dweight, exact.dweight, rough.dweight);
    });
  }

  void linear() {
    linear::Tensors<T> t({any(1, 40), any(1, 120), any(1, 40)}, Rows::strided, m_generator());
    t.dweight.fill([](std::size_t) { return 0; });
    const auto y = [&]<class Real, class Store>() {
      return ref::linear_forward<Real, Store>(t.x.template read<Real>(), t.weight.template read<Real>(), {},
                                              {});
    };
    const auto dx = [&]<class Real, class Store>() {
      return ref::linear_backward_input<Real, Store>(t.weight.template read<Real>(),
                                                     t.dy.template read<Real>());
    };
    const auto judged = [&](const char* function, const auto& problem, auto& out, const auto& expected,
                            const auto& naive) {
      test_every_kernel(problem, {&out}, [&](const std::string&) { judge(function, out, expected, naive); });
    };
    judged("linear_forward", Impl::LinearForward{t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), {}}, t.y,
           y.template operator()<Oracle, Oracle>(), y.template operator()<Naive, T>());
    judged("linear_backward_input", Impl::LinearBackwardInput{t.weight.ref(), t.dy.ref(), t.dx.ref(), {}}, t.dx,
           dx.template operator()<Oracle, Oracle>(), dx.template operator()<Naive, T>());
    judged("linear_backward_weight", Impl::LinearBackwardWeight{t.x.ref(), t.dy.ref(), t.dweight.ref(), {}},
           t.dweight, t.template backward_weight<Oracle>(1), t.template backward_weight<Naive>(1));
  }

  void swiglu() {
    const std::int64_t rows = any(1, 20), hidden = any(1, 150);
    const auto random = [&] { return TestTensor<Exec, T>({rows, hidden}).random(m_generator, spread()); };
    const auto gate = random(), up = random(), dy = random();
    TestTensor<Exec, T> y({rows, hidden}), dgate({rows, hidden}), dup({rows, hidden});
    const auto forward = [&]<class Real, class Store>() {
      return ref::swiglu_forward<Real, Store>(gate.template read<Real>(), up.template read<Real>());
    };
    const auto backward = [&]<class Real, class Store>() {
      return ref::swiglu_backward<Real, Store>(gate.template read<Real>(), up.template read<Real>(),
                                               dy.template read<Real>());
    };
    const auto expected = forward.template operator()<Oracle, Oracle>();
    const auto naive = forward.template operator()<Naive, T>();
    test_every_kernel(Impl::SwigluForward{gate.ref(), up.ref(), y.ref()}, {&y},
                      [&](const std::string&) { judge("swiglu_forward", y, expected, naive); });
    const auto exact = backward.template operator()<Oracle, Oracle>();
    const auto rough = backward.template operator()<Naive, T>();
    test_every_kernel(Impl::SwigluBackward{gate.ref(), up.ref(), dy.ref(), dgate.ref(), dup.ref()},
                      {&dgate, &dup}, [&](const std::string&) {
                        judge("swiglu_backward", dgate, exact.dgate, rough.dgate);
                        judge("swiglu_backward", dup, exact.dup, rough.dup);
                      });
  }

  void attention() {
    const std::int64_t kv_heads = any(1, 3), keys = any(1, 70);
    AttentionCase c{
        any(1, 2), any(0, 2) > 0 ? any(1, 70) : keys, keys, kv_heads * any(1, 3), kv_heads, any(1, 40),
        any(1, 40)};
    c.options.causal = any(0, 1) == 1;
    if (any(0, 3) == 0) c = c.window(any(1, 9));
    if (any(0, 3) == 0) c = c.scale(any(0, 1) == 1 ? 0.3 : -0.7);
    if (any(0, 3) == 0) c = c.softcap(5);
    if (any(0, 3) == 0) c = c.bias(Bias::queries_and_keys);
    if (any(0, 3) == 0) c = c.alibi();
    if (any(0, 3) == 0) c = c.sinks();
    c = c.spread(spread());
    AttentionTensors<T> t(c, any(0, 1) == 1 ? Rows::strided : Rows::aligned, m_generator());
    const auto expected = t.template forward<Oracle, Oracle>();
    const auto naive = t.template forward<Naive, T>();
    test_every_kernel(t.forward_problem(), {&t.out, &t.lse}, [&](const std::string&) {
      judge("attention_forward", t.out, expected.out, naive.out);
      judge("attention_forward", t.lse, expected.lse, naive.lse);
    });
    t.save(expected);
    if (c.has_sinks) t.dsinks.fill([](std::size_t) { return 0; });
    const auto exact = t.template backward<Oracle, Oracle>();
    const auto rough = t.template backward<Naive, T>();
    test_every_kernel(t.backward_problem(), t.gradients(), [&](const std::string&) {
      judge("attention_backward", t.dq, exact.dq, rough.dq);
      judge("attention_backward", t.dk, exact.dk, rough.dk);
      judge("attention_backward", t.dv, exact.dv, rough.dv);
      if (t.dbias.ref().present()) judge("attention_backward", t.dbias, exact.dbias, rough.dbias);
      if (c.has_sinks) judge("attention_backward", t.dsinks, exact.dsinks, rough.dsinks);
    });
  }

  const std::map<std::string, Tally>& tallies() const { return m_tallies; }

 private:
  using Oracle = oracle_t<T>;
  using Naive = naive_t<T>;

  std::int64_t any(std::int64_t first, std::int64_t last) {
    return std::uniform_int_distribution<std::int64_t>(first, last)(m_generator);
  }
  double spread() { return std::exp2(static_cast<double>(any(-3, 3))); }

  template <class S, class Real>
  void judge(const char* function, const TestTensor<Exec, S>& out, const HostTensor<Real>& expected,
             const HostTensor<Naive>& naive) {
    const Comparison c = compare<S>(out.template read<Real>(), expected, naive);
    BOOST_TEST(c.ok, function << ": " << c.report);
    Tally& tally = m_tallies[function];
    ++tally.tensors;
    tally.rejected += !c.ok;
    tally.share = std::max(tally.share, c.share);
  }

  std::mt19937 m_generator;
  std::map<std::string, Tally> m_tallies;
};

std::int64_t draws() {
  const char* text = std::getenv("KFORMER_DRAWS");
  return text ? std::atoll(text) : 20;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(false_alarms)

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  const char* seed = std::getenv("KFORMER_SEED");
  Draws<T> random(seed ? static_cast<std::uint32_t>(std::atoll(seed)) : 1);
  for (std::int64_t draw = 0; draw < draws(); ++draw) {
    random.rms_norm();
    random.linear();
    random.swiglu();
    random.attention();
  }
  for (const auto& [function, tally] : random.tallies())
    BOOST_TEST_MESSAGE(to_string(dtype_of<T>)
                       << ", " << function << ": " << tally.tensors << " tensors, " << tally.rejected
                       << " rejected, at most " << static_cast<double>(tally.share) << " of a limit");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
