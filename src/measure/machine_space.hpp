// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>
#include <type_traits>

#include "kformer/core/kernel_list.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/ops/linear.hpp"
#include "measure/bursts/host_bursts.hpp"
#include "measure/bursts/tile_burst.hpp"
#include "measure/fill.hpp"
#include "measure/machine.hpp"
#include "measure/timing.hpp"

/// \file
/// The limits of one execution space; compiled once per space.

namespace kformer::measure {

/// How often limits are sampled, for the table of the machine and beside a case.
inline constexpr SamplingPlan thorough{.repeats = 3, .min_time_s = 0.01, .max_time_s = 1},
    brief{.repeats = 2, .min_time_s = 0.003, .max_time_s = 0.2};

/// Seconds of the best of a few calls, after a first one that loads what they need.
template <class Exec, class Launch>
double shortest_time(const Exec& exec, const SamplingPlan& plan, Launch launch) {
  launch();
  const double warm = seconds_of(exec, launch);
  return sample(exec, plan, warm, launch, [] { return false; }).quantile(0);
}

/// C = A Bᵀ with n × n matrices, by the library's best kernel.
template <class Exec, class T>
class SquareProduct {
 public:
  /// Fills the machine.
  static constexpr std::int64_t n = Impl::is_host_space<Exec> ? 1024 : sizeof(T) == 2 ? 8192 : 4096;
  static constexpr double flops = 2.0 * n * n * n;  ///< of one launch

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
double matmul_rate(const Exec& exec, const SamplingPlan& plan) {
  const SquareProduct<Exec, T> product(exec);
  const auto launch = [&] { product.launch(exec); };
  return product.flops / shortest_time(exec, plan, launch);
}

/// The same by the best kernel of all, whichever one a case is forced to run: what a machine can do does not
/// depend on that.
template <class Exec, class T>
double free_matmul_rate(const Exec& exec, const SamplingPlan& plan) {
  const ForcedKernels none("");
  return matmul_rate<Exec, T>(exec, plan);
}

/// Elements of the arrays that are copied: far more than the caches hold.
template <class Exec>
inline constexpr std::int64_t copied_doubles = std::int64_t(1) << (Impl::is_host_space<Exec> ? 24 : 26);

template <class Exec>
using Doubles = Kokkos::View<double*, typename Exec::memory_space>;

template <class Exec>
void copy(const Exec& exec, const Doubles<Exec>& from, const Doubles<Exec>& to) {
  Kokkos::parallel_for(
      "kformer::measure::copy", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(to.size())),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) = from(i); });
}

/// The sum over all threads of a host of what each does at its best: `run(i)` does `work` on thread `i`, `repeats` times.
/// Each thread has its own clock, so that neither launches nor other processes count.
template <class Exec, class Run>
double rate_of_threads(const Exec& exec, double work, std::int64_t repeats, const Run& run) {
  const std::int64_t threads = exec.concurrency();
  const Kokkos::View<double*, Kokkos::HostSpace> best("kformer::measure::rates",
                                                      static_cast<std::size_t>(threads));
  Kokkos::parallel_for("kformer::measure::rate_of_threads", Kokkos::RangePolicy<Exec>(exec, 0, threads),
                       [=](std::int64_t i) {
                         for (std::int64_t n = 0; n < repeats; ++n) {
                           const auto begin = std::chrono::steady_clock::now();
                           run(i);
                           const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
                           best(i) = std::max(best(i), work / time.count());
                         }
                       });
  exec.fence("kformer::measure::rate_of_threads");
  return std::accumulate(best.data(), best.data() + threads, 0.0);
}

/// byte/s of each kind of access to two arrays.
template <class Exec>
class Bandwidths {
 public:
  /// \param bursts the access of a host; it must outlive this
  Bandwidths(std::int64_t doubles, const SamplingPlan& plan, const HostBursts& bursts = host_bursts())
      : m_plan(plan),
        m_bursts(bursts),
        m_from(std::string(from_label), doubles),
        m_to(std::string(to_label), doubles) {}

  double copies() const {
    return of_launches(2, [this] { copy(m_exec, m_from, m_to); });
  }
  /// By non-temporal stores; on devices as `copies`.
  double streams() const {
    if constexpr (Impl::is_host_space<Exec>)
      return of_parts(2, [stream = m_bursts.stream, from = m_from, to = m_to](
                             std::int64_t at, std::int64_t size) { stream(&from(at), &to(at), size); });
    else
      return copies();
  }
  /// In place.
  double updates() const {
    if constexpr (Impl::is_host_space<Exec>)
      return of_parts(2, [update = m_bursts.update, to = m_to](std::int64_t at, std::int64_t size) {
        update(&to(at), size);
      });
    else
      return of_launches(2, [this] { launch_update(m_exec, m_to); });
  }
  double reads() const {
    if constexpr (Impl::is_host_space<Exec>)
      return of_parts(1, [read = m_bursts.read, from = m_from, sums = m_sums](
                             std::int64_t at, std::int64_t size) { sums(at / size) = read(&from(at), size); });
    else
      return of_launches(1, [this] { launch_read(m_exec, m_from, m_sums); });
  }

  struct Largest {
    double moved;  ///< reads and writes together, of the kind of access that moves the most
    double read;   ///< reads alone: half of what updates and streams move
  };
  Largest largest_of_each() const {
    const double all[] = {reads(), updates(), streams()};
    return {std::max({all[0], all[1], all[2]}), std::max({all[0], all[1] / 2, all[2] / 2})};
  }
  double largest() const { return largest_of_each().moved; }

  // Public for the compiler of devices.
  static void launch_update(const Exec& exec, const Doubles<Exec>& values) {
    Kokkos::parallel_for(
        "kformer::measure::update",
        Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(values.size())),
        KOKKOS_LAMBDA(std::int64_t i) { values(i) = values(i) * 0.5 + 0.5; });
  }
  // Neighbouring threads read neighbouring elements.
  static void launch_read(const Exec& exec, const Doubles<Exec>& from, const Doubles<Exec>& sums) {
    const auto parts = static_cast<std::int64_t>(sums.size()), count = static_cast<std::int64_t>(from.size());
    Kokkos::parallel_for(
        "kformer::measure::read", Kokkos::RangePolicy<Exec>(exec, 0, parts), KOKKOS_LAMBDA(std::int64_t i) {
          double sum = 0;
          for (std::int64_t j = i; j < count; j += parts) sum += from(j);
          sums(i) = sum;
        });
  }

 private:
  static constexpr const char *from_label = "kformer::measure::from", *to_label = "kformer::measure::to";

  template <class Launch>
  double of_launches(double passes, const Launch& launch) const {
    return passes * sizeof(double) * static_cast<double>(m_from.size()) / shortest_time(m_exec, m_plan, launch);
  }
  // Small parts are passed over many times, beside which the clock is fast.
  template <class Pass>
  double of_parts(double passes, const Pass& pass) const {
    constexpr std::int64_t doubles_per_time = std::int64_t(1) << 15, alignment = 8;
    const std::int64_t part = static_cast<std::int64_t>(m_from.size()) / m_exec.concurrency() / alignment *
                              alignment,
                       rounds = std::max<std::int64_t>(1, doubles_per_time / part);
    return rate_of_threads(m_exec, passes * sizeof(double) * static_cast<double>(part * rounds), m_plan.repeats,
                           [=](std::int64_t i) {
                             for (std::int64_t n = 0; n < rounds; ++n) pass(i * part, part);
                           });
  }

  Exec m_exec;
  SamplingPlan m_plan;
  const HostBursts& m_bursts;
  Doubles<Exec> m_from, m_to, m_sums{"kformer::measure::sums", static_cast<std::size_t>(m_exec.concurrency())};
};

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

/// Of every product: a half, or four bytes of 1.
template <class T>
inline constexpr T factor_of_burst = std::is_integral_v<T> ? T(0x01010101) : T(0.5);

/// FLOP/s of a burst on all threads of a host at once.
template <class Exec, class T>
double burst_rate(const Exec& exec, const ArithmeticBurst<T>& burst, const SamplingPlan& plan) {
  if (burst.run == nullptr) return 0;
  constexpr std::int64_t iterations = 1 << 17;
  const Kokkos::View<T*, Kokkos::HostSpace> sums("kformer::measure::sums",
                                                 static_cast<std::size_t>(exec.concurrency()));
  return rate_of_threads(exec, burst.flops_per_iteration * static_cast<double>(iterations), 8 * plan.repeats,
                         [=](std::int64_t i) { sums(i) = burst.run(iterations, factor_of_burst<T>); });
}

/// FLOP/s of multiply-adds on all threads at once: by host instructions where the space runs on the host, by a
/// kernel elsewhere.
template <class Exec, class T>
double fma_rate(const Exec& exec, const SamplingPlan& plan) {
  if constexpr (Impl::is_host_space<Exec>) {
    return burst_rate(exec, host_bursts().template multiply_adds<T>(), plan);
  } else {
    constexpr std::int64_t iterations = 1 << 14;
    const std::int64_t threads = std::int64_t(exec.concurrency()) * 4;
    const Kokkos::View<T*, typename Exec::memory_space> sums("kformer::measure::sums", threads);
    const auto launch = [&] { launch_device_fma<Exec, T>(exec, sums, iterations); };
    return device_fma_flops * static_cast<double>(iterations * threads) / shortest_time(exec, plan, launch);
  }
}

/// FLOP/s of pairs of bf16 products, in vectors or in tiles.
template <class Exec>
double pair_rate(const Exec& exec, const SamplingPlan& plan,
                 const ArithmeticBurst<float>& tiles = tile_burst()) {
  if constexpr (Impl::is_host_space<Exec>)
    return std::max(burst_rate(exec, host_bursts().bf16, plan), burst_rate(exec, tiles, plan));
  else
    return 0;
}

template <class Exec>
double dot_rate(const Exec& exec, const SamplingPlan& plan) {
  if constexpr (Impl::is_host_space<Exec>)
    return burst_rate(exec, host_bursts().int8, plan);
  else
    return 0;
}

/// byte/s of copies between memory of the space and host memory, as offloaded arrays make them.
template <class Exec>
double transfer_rate(const Exec& exec, const SamplingPlan& plan) {
  using Space = typename Exec::memory_space;
  constexpr std::size_t bytes = sizeof(double) * copied_doubles<Exec> / 2;
  const auto ledger = Ledger::create();
  const Kokkos::View<std::byte*, Space> here("kformer::measure::here", bytes);
  const Kokkos::View<std::byte*, HostStagingSpace<Space>> there("kformer::measure::there", bytes);
  const auto launch = [&] {
    transfer(exec, *ledger, there, here);
    transfer(exec, *ledger, here, there);
  };
  return 2 * static_cast<double>(bytes) / shortest_time(exec, plan, launch);
}

template <class Exec>
MachineLimits machine_limits_on() {
  const Exec exec;
  MachineLimits limits{.fma_rate_f32 = fma_rate<Exec, float>(exec, thorough),
                       .fma_rate_f64 = fma_rate<Exec, double>(exec, thorough),
                       .pair_rate_bf16 = pair_rate(exec, thorough),
                       .dot_rate_int8 = dot_rate(exec, thorough),
                       .matmul_rate_f32 = matmul_rate<Exec, float>(exec, thorough),
                       .matmul_rate_f64 = matmul_rate<Exec, double>(exec, thorough),
                       .matmul_rate_bf16 = matmul_rate<Exec, bf16>(exec, thorough),
                       .matmul_rate_f16 = matmul_rate<Exec, f16>(exec, thorough)};
  const Bandwidths<Exec> bandwidths(copied_doubles<Exec>, thorough);
  limits.copy_bandwidth = bandwidths.copies();
  limits.stream_bandwidth = bandwidths.streams();
  limits.update_bandwidth = bandwidths.updates();
  limits.read_bandwidth = bandwidths.reads();
  limits.transfer_rate = transfer_rate(exec, thorough);
  return limits;
}

/// FLOP/s of the units for matrices of a device, by the library's product.
template <class Exec>
double matrix_unit_rate(const Exec& exec, DType dtype) {
  switch (dtype) {
    case DType::f64:
      return free_matmul_rate<Exec, double>(exec, brief);
    case DType::bf16:
      return free_matmul_rate<Exec, bf16>(exec, brief);
    case DType::f16:
      return free_matmul_rate<Exec, f16>(exec, brief);
    // A product of floats is three of TF32, which have half of the rate of 16-bit types.
    default:
      return free_matmul_rate<Exec, bf16>(exec, brief) / 6;
  }
}

/// FLOP/s that a kernel of this storage type cannot exceed.
template <class Exec>
double flop_rate_limit(const Exec& exec, DType dtype) {
  const double fma =
      dtype == DType::f64 ? fma_rate<Exec, double>(exec, brief) : fma_rate<Exec, float>(exec, brief);
  if constexpr (!Impl::is_host_space<Exec>)
    return std::max(fma, matrix_unit_rate(exec, dtype));
  else
    return dtype == DType::bf16 ? std::max(fma, pair_rate(exec, brief)) : fma;
}

/// Operations/s that a kernel cannot exceed whose products are of 8-bit activations: of bytes, or of floats where these
/// are faster.
template <class Exec>
double int8_rate_limit(const Exec& exec) {
  return std::max(flop_rate_limit(exec, DType::f32), dot_rate(exec, brief));
}

template <class Exec>
CaseLimits case_limits_on(DType dtype, double bytes) {
  constexpr std::int64_t least_per_thread = 1024;
  const auto doubles = static_cast<std::int64_t>(bytes / (2 * sizeof(double)));
  const Bandwidths<Exec> bandwidths(
      std::clamp(doubles, least_per_thread * Exec().concurrency(), copied_doubles<Exec>), brief);
  return {.flop_rate = flop_rate_limit(Exec(), dtype), .bandwidth = bandwidths.largest()};
}

}  // namespace kformer::measure
