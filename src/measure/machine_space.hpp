// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include "kformer/ops/linear.hpp"
#include "measure/fill.hpp"
#include "measure/fma/fma_peak.hpp"
#include "measure/machine.hpp"
#include "measure/sampling.hpp"

/// \file
/// The limits of one execution space; compiled once per space.

namespace kformer::measure {

/// Whether a space computes in host memory.
template <class Exec>
inline constexpr bool is_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;

/// Seconds of the best of a few calls, after a first one that loads what they need.
template <class Exec, class Launch>
double shortest_time(const Exec& exec, Launch launch) {
  launch();
  const double warm = seconds_of(exec, launch);
  return sample(exec, {.repeats = 5, .min_time_s = 0.02, .max_time_s = 2}, warm, launch, [] { return false; })
      .quantile(0);
}

/// C = A Bᵀ with n × n matrices, by the library's best kernel.
template <class Exec, class T>
class SquareProduct {
 public:
  static constexpr std::int64_t n = is_host<Exec> ? 1024 : sizeof(T) == 2 ? 8192 : 4096;  ///< fills the machine
  static constexpr double flops = 2.0 * n * n * n;                                        ///< of one launch

  explicit SquareProduct(const Exec& exec) {
    fill_random(exec, m_a.data(), n * n, 1, 1);
    fill_random(exec, m_b.data(), n * n, 2, 1);
  }
  void launch(const Exec& exec) const { linear_forward(exec, m_a, m_b, m_c); }

 private:
  using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space>;
  Matrix m_a{"kformer::measure::a", n, n}, m_b{"kformer::measure::b", n, n}, m_c{"kformer::measure::c", n, n};
};

/// FLOP/s of a matrix product, the best of a few.
template <class Exec, class T>
double matmul_rate(const Exec& exec) {
  const SquareProduct<Exec, T> product(exec);
  const auto launch = [&] { product.launch(exec); };
  return product.flops / shortest_time(exec, launch);
}

/// Elements of the arrays that are copied: far more than the caches hold.
template <class Exec>
inline constexpr std::int64_t copied_doubles = std::int64_t(1) << (is_host<Exec> ? 24 : 26);

template <class Exec, class Array>
void copy(const Exec& exec, const Array& from, const Array& to) {
  Kokkos::parallel_for(
      "kformer::measure::copy", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(to.size())),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) = from(i); });
}

/// byte/s of a copy, reads and writes counted, the best of a few.
template <class Exec>
double copy_bandwidth(const Exec& exec) {
  constexpr std::int64_t n = copied_doubles<Exec>;
  using Array = Kokkos::View<double*, typename Exec::memory_space>;
  const Array from("kformer::measure::from", n), to("kformer::measure::to", n);
  const auto launch = [&] { copy(exec, from, to); };
  return 2.0 * sizeof(double) * static_cast<double>(n) / shortest_time(exec, launch);
}

/// FLOP of one thread of `launch_device_fma` in one iteration.
inline constexpr double device_fma_flops = 2 * 8;

/// Eight chains of multiply-adds per thread.
template <class Exec, class T, class Sums>
void launch_device_fma(const Exec& exec, const Sums& sums, std::int64_t iterations) {
  Kokkos::parallel_for(
      "kformer::measure::fma_peak", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(sums.size())),
      KOKKOS_LAMBDA(std::int64_t i) {
        T a = T(i), b = a + 1, c = a + 2, d = a + 3, e = a + 4, f = a + 5, g = a + 6, h = a + 7;
        const T factor = T(0.5);
        for (std::int64_t n = 0; n < iterations; ++n) {
          a = a * factor + factor, b = b * factor + factor, c = c * factor + factor, d = d * factor + factor;
          e = e * factor + factor, f = f * factor + factor, g = g * factor + factor, h = h * factor + factor;
        }
        sums(i) = a + b + c + d + e + f + g + h;
      });
}

/// FLOP/s of multiply-adds on all threads at once: by host instructions where the space runs on the host, by a
/// kernel elsewhere.
template <class Exec, class T>
double fma_rate(const Exec& exec) {
  constexpr std::int64_t iterations = 1 << 20;
  const std::int64_t threads = std::int64_t(exec.concurrency()) * (is_host<Exec> ? 1 : 4);
  const Kokkos::View<T*, typename Exec::memory_space> sums("kformer::measure::sums", threads);
  if constexpr (is_host<Exec>) {
    const auto& burst = host_fma().template burst<T>();
    const auto launch = [&] {
      Kokkos::parallel_for("kformer::measure::fma_peak", Kokkos::RangePolicy<Exec>(exec, 0, threads),
                           [=](std::int64_t i) { sums(i) = burst.run(iterations, T(0.5)); });
    };
    return burst.flops_per_iteration * static_cast<double>(iterations * threads) / shortest_time(exec, launch);
  } else {
    const auto launch = [&] { launch_device_fma<Exec, T>(exec, sums, iterations / 64); };
    return device_fma_flops * static_cast<double>(iterations / 64 * threads) / shortest_time(exec, launch);
  }
}

template <class Exec>
MachineLimits machine_limits_on() {
  const Exec exec;
  return {.matmul_rate_f32 = matmul_rate<Exec, float>(exec),
          .matmul_rate_f64 = matmul_rate<Exec, double>(exec),
          .matmul_rate_bf16 = matmul_rate<Exec, bf16>(exec),
          .matmul_rate_f16 = matmul_rate<Exec, f16>(exec),
          .fma_rate_f32 = fma_rate<Exec, float>(exec),
          .fma_rate_f64 = fma_rate<Exec, double>(exec),
          .copy_bandwidth = copy_bandwidth(exec)};
}

}  // namespace kformer::measure
