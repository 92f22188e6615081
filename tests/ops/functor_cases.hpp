// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention_functors.hpp"
#include "ops/attention_cases.hpp"

/// \file
/// Calls of flash attention with functors, for tests.

namespace kformer::Testing {

/// Calls `f` once for the best kernel that takes functors and once for the portable one.
template <class F>
void with_each_kernel(F f) {
  BOOST_TEST_CONTEXT("the best kernel") { f(); }
  const ForcedKernels portable("attention:kokkos");
  BOOST_TEST_CONTEXT("the portable kernel") { f(); }
}

template <class T, class F>
void run_forward(const AttentionTensors<T>& t, const F& functor) {
  attention_forward(Exec(), t.q.template view<4>(), t.k.template view<4>(), t.v.template view<4>(),
                    t.out.template view<4>(), t.lse.template view<3>(), functor, t.c.options, extras_of(t));
  Exec().fence("kformer::Testing::run_forward");
}

template <class T, class F>
Kokkos::View<std::byte*, Exec::memory_space> workspace_for(const AttentionTensors<T>& t, const F& functor) {
  return Kokkos::View<std::byte*, Exec::memory_space>(
      "workspace", attention_backward_workspace_bytes(Exec(), t.c.shape(dtype_of<T>), functor, t.c.options,
                                                      extras_of(t), extra_gradients_of(t)));
}

template <class T, class F>
void run_backward(const AttentionTensors<T>& t, const F& functor, const Workspace& workspace) {
  attention_backward(Exec(), backward_operands(t), functor, t.c.options, extras_of(t), extra_gradients_of(t),
                     workspace);
  Exec().fence("kformer::Testing::run_backward");
}

template <class T, class F>
void run_backward(const AttentionTensors<T>& t, const F& functor) {
  run_backward(t, functor, workspace_for(t, functor));
}

/// Judges both directions, for each kernel, by the reference with a bias equal to the functor.
template <class T, class F>
void check_against_bias(const AttentionCase& c, const F& functor, auto bias_of) {
  AttentionTensors<T> t(c), dense(c);
  const bool full = c.bias_kind == Bias::full, biased = c.bias_kind != Bias::none;
  if (biased) {
    // Quarters: the sum with the functor's value is exact in every storage type.
    const auto random = t.bias.template read<double>();
    t.bias.fill(
        [&](std::size_t at) { return static_cast<compute_t<T>>(std::round(4 * random.values()[at]) / 4); });
  }
  const auto added =
      t.bias.ref().present() ? t.bias.template read<double>() : kformer::Impl::HostTensor<double>();
  dense.bias = TestTensor<Exec, T>({full ? c.batch : 1, full ? c.q_heads : 1, c.q_len, c.kv_len});
  dense.bias.fill([&](std::size_t at) {
    const auto n = static_cast<std::int64_t>(at);
    return static_cast<compute_t<T>>(bias_of(n / c.kv_len % c.q_len, n % c.kv_len) +
                                     (biased ? added.values()[at] : 0.0));
  });
  const auto expected = dense.template forward<naive_t<T>, T>();
  dense.save(expected);
  const auto gradients = dense.template backward<naive_t<T>, T>();
  BOOST_TEST_INFO_SCOPE(t.forward_problem().operands().describe());
  with_each_kernel([&] {
    run_forward(t, functor);
    check_close("out", t.out, expected.out);
    check_close("lse", t.lse, expected.lse);
    t.save(expected);
    t.dsinks.reset();
    run_backward(t, functor);
    check_close("dq", t.dq, gradients.dq);
    check_close("dk", t.dk, gradients.dk);
    check_close("dv", t.dv, gradients.dv);
    if (biased) check_close("dbias", t.dbias, gradients.dbias);
    if (c.has_sinks) check_close("dsinks", t.dsinks, gradients.dsinks);
  });
}

}  // namespace kformer::Testing
