// SPDX-License-Identifier: MIT
// Normalises a row and attends to two keys with the installed library, and checks the numbers by hand.
#include <Kokkos_Core.hpp>
#include <kformer/ops/attention.hpp>
#include <kformer/ops/attention_functors.hpp>
#include <kformer/ops/rms_norm.hpp>

#include <cmath>
#include <cstdio>

namespace {

using Exec = Kokkos::DefaultExecutionSpace;

int faults = 0;

void expect(const char* what, double got, double expected) {
  if (std::abs(got - expected) <= 1e-6) return;
  std::printf("%s: got %.9g, expected %.9g\n", what, got, expected);
  ++faults;
}

template <class V>
auto on_host(const V& view) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
}

void normalise() {
  const Kokkos::View<float**, Kokkos::LayoutRight> x("x", 1, 2), y("y", 1, 2);
  const Kokkos::View<float*> weight("weight", 2), rstd("rstd", 1);
  const auto x_host = Kokkos::create_mirror_view(x);
  x_host(0, 0) = 3;
  x_host(0, 1) = 4;
  Kokkos::deep_copy(x, x_host);
  Kokkos::deep_copy(weight, 2.0f);
  kformer::rms_norm_forward(Exec(), x, weight, y, rstd, {.eps = 0});
  const auto y_host = on_host(y);
  expect("rms_norm y[0]", y_host(0, 0), 6 / std::sqrt(12.5));
  expect("rms_norm y[1]", y_host(0, 1), 8 / std::sqrt(12.5));
}

// Hides the second key.
struct FirstKeyOnly {
  KOKKOS_FUNCTION bool operator()(kformer::AttentionIndex at) const { return at.key == 0; }
};

void attend() {
  // One query of length 1 along the first of two keys: the scores are 1 and 0.
  const Kokkos::View<float****, Kokkos::LayoutRight> q("q", 1, 1, 1, 2), k("k", 1, 2, 1, 2), v("v", 1, 2, 1, 2),
      out("out", 1, 1, 1, 2);
  const Kokkos::View<float***, Kokkos::LayoutRight> lse("lse", 1, 1, 1);
  const auto q_host = Kokkos::create_mirror_view(q), k_host = Kokkos::create_mirror_view(k),
             v_host = Kokkos::create_mirror_view(v);
  q_host(0, 0, 0, 0) = 1;
  k_host(0, 0, 0, 0) = 1;
  k_host(0, 1, 0, 1) = 1;
  v_host(0, 0, 0, 0) = 1;
  v_host(0, 1, 0, 1) = 1;
  Kokkos::deep_copy(q, q_host);
  Kokkos::deep_copy(k, k_host);
  Kokkos::deep_copy(v, v_host);
  kformer::attention_forward(Exec(), q, k, v, out, lse, {.scale = 1});
  const auto out_host = on_host(out);
  const auto lse_host = on_host(lse);
  expect("attention out[0]", out_host(0, 0, 0, 0), std::exp(1) / (std::exp(1) + 1));
  expect("attention out[1]", out_host(0, 0, 0, 1), 1 / (std::exp(1) + 1));
  expect("attention lse", lse_host(0, 0, 0), std::log(std::exp(1) + 1));
  kformer::attention_forward(Exec(), q, k, v, out, lse, FirstKeyOnly{}, {.scale = 1});
  const auto masked_host = on_host(out);
  expect("masked attention out[0]", masked_host(0, 0, 0, 0), 1);
  expect("masked attention out[1]", masked_host(0, 0, 0, 1), 0);
}

}  // namespace

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  normalise();
  attend();
  if (faults == 0) std::puts("the installed library works");
  return faults == 0 ? 0 : 1;
}
