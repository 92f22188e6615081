// SPDX-License-Identifier: MIT
// Attention among particles: a functor hides all pairs farther apart than a cutoff and weakens distant ones.
// Particles are sorted by x, so that tiles of far ones are skipped. Checks a particle against a loop.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <Kokkos_Sort.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/ops/attention_functors.hpp"

using View4 = Kokkos::View<float****, Kokkos::LayoutRight>;

// [functor]
struct Neighbours {
  Kokkos::View<const float* [3]> position;
  float cutoff;

  KOKKOS_FUNCTION float distance(kformer::AttentionIndex at) const {
    float square = 0;
    for (int d = 0; d < 3; ++d) {
      const float difference = position(at.query, d) - position(at.key, d);
      square += difference * difference;
    }
    return Kokkos::sqrt(square);
  }
  // Which pairs exist; which keys some queries may see, so that tiles of others are skipped.
  KOKKOS_FUNCTION bool operator()(kformer::AttentionIndex at) const { return distance(at) < cutoff; }
  KOKKOS_FUNCTION kformer::KeyRange keys(kformer::AttentionRows rows) const {
    kformer::KeyRange range{rows.first, rows.end};
    const auto x = [&](std::int64_t i) { return position(i, 0); };
    while (range.first > 0 && x(range.first - 1) > x(rows.first) - cutoff) --range.first;
    while (range.end < position.extent_int(0) && x(range.end) < x(rows.end - 1) + cutoff) ++range.end;
    return range;
  }
  // What the score of a pair becomes, and its derivative by the score.
  KOKKOS_FUNCTION float operator()(float score, kformer::AttentionIndex at) const {
    return score - distance(at);
  }
  KOKKOS_FUNCTION float derivative(float, kformer::AttentionIndex) const { return 1; }
};
// [functor]

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const int particles = 200, dim = 16;
  const View4 q("q", 1, particles, 1, dim), k("k", 1, particles, 1, dim), v("v", 1, particles, 1, dim);
  const View4 out("out", 1, particles, 1, dim);
  const Kokkos::View<float***, Kokkos::LayoutRight> lse("lse", 1, 1, particles);
  const Kokkos::View<float* [3]> position("position", particles);
  const Kokkos::Random_XorShift64_Pool<> random(1);
  for (const View4& view : {q, k, v}) Kokkos::fill_random(view, random, -1.0f, 1.0f);
  Kokkos::fill_random(position, random, 0.0f, 1.0f);
  Kokkos::sort(Kokkos::DefaultExecutionSpace(), Kokkos::subview(position, Kokkos::ALL, 0));

  // [call]
  const Neighbours neighbours{position, 0.5f};
  kformer::attention_forward(Kokkos::DefaultExecutionSpace(), q, k, v, out, lse, neighbours);
  // [call]

  const auto host = [](const auto& view) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  };
  const auto q_host = host(q), k_host = host(k), v_host = host(v), out_host = host(out);
  const auto p = host(position);
  double weights = 0, expected = 0;  // feature 0 of particle 7
  for (int j = 0; j < particles; ++j) {
    double score = 0;
    for (int d = 0; d < dim; ++d) score += q_host(0, 7, 0, d) * k_host(0, j, 0, d) / std::sqrt(dim);
    const double distance = std::hypot(p(7, 0) - p(j, 0), p(7, 1) - p(j, 1), p(7, 2) - p(j, 2));
    const double weight = distance < 0.5 ? std::exp(score - distance) : 0;
    weights += weight;
    expected += weight * v_host(0, j, 0, 0);
  }
  std::printf("particle 7: %.6f, by a loop %.6f\n", out_host(0, 7, 0, 0), expected / weights);
  return std::abs(out_host(0, 7, 0, 0) - expected / weights) < 1e-5 ? 0 : 1;
}
