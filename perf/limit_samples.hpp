// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>

#include "case.hpp"
#include "measure/bursts/host_bursts.hpp"
#include "measure/machine_space.hpp"

namespace kformer::perf {

/// The rate of a burst of all threads together. The clock of a processor wanders, so samples are short and meant to
/// be taken between the measurements they judge.
template <class T>
class BurstRate {
 public:
  explicit BurstRate(const measure::ArithmeticBurst<T>& burst) : m_burst(burst) {
    constexpr double sample_s = 0.01;
    while (seconds() < 0.1 * sample_s) m_iterations *= 2;
    m_iterations = static_cast<std::int64_t>(static_cast<double>(m_iterations) * sample_s / seconds()) + 1;
  }
  /// FLOP/s.
  double sample() const {
    return m_burst.flops_per_iteration * static_cast<double>(m_iterations) * m_exec.concurrency() / seconds();
  }

 private:
  double seconds() const {
    const auto launch = [this] {
      Kokkos::parallel_for(
          "kformer::perf::burst", Kokkos::RangePolicy<Space>(m_exec, 0, m_exec.concurrency()),
          [burst = m_burst, iterations = m_iterations](int) { burst.run(iterations, T(0.5)); });
    };
    return measure::seconds_of(m_exec, launch);
  }

  Space m_exec;
  measure::ArithmeticBurst<T> m_burst;
  std::int64_t m_iterations = 1024;
};

/// The rate that a host's kernel of storage type T cannot exceed: multiply-adds, or pairs of bf16 products.
template <class T>
class HostRate {
 public:
  HostRate() {
    if (const auto& pairs = measure::host_bursts().bf16; std::is_same_v<T, bf16> && pairs.run != nullptr)
      m_pairs.emplace(pairs);
  }
  /// FLOP/s.
  double sample() const { return std::max(m_multiply_adds.sample(), m_pairs ? m_pairs->sample() : 0.0); }

 private:
  BurstRate<compute_t<T>> m_multiply_adds{measure::host_bursts().template multiply_adds<compute_t<T>>()};
  std::optional<BurstRate<float>> m_pairs;
};

/// The rate of a matrix product in T.
template <class T>
class MatmulRate {
 public:
  MatmulRate() { sample(); }
  /// FLOP/s.
  double sample() const {
    const auto launch = [this] { m_product.launch(m_exec); };
    return m_product.flops / measure::seconds_of(m_exec, launch);
  }

 private:
  Space m_exec;
  measure::SquareProduct<Space, T> m_product{m_exec};
};

/// The bandwidth of a copy far larger than the caches.
class CopyRate {
 public:
  CopyRate() { sample(); }
  /// byte/s, reads and writes counted.
  double sample() const {
    const auto launch = [this] { measure::copy(m_exec, m_from, m_to); };
    return calls * 2.0 * sizeof(double) * count / measure::seconds_of(m_exec, launch, calls);
  }

 private:
  static constexpr int calls = on_host ? 1 : 4;  // beside which a fence of a device is short
  static constexpr std::size_t count = measure::copied_doubles<Space>;
  Space m_exec;
  Kokkos::View<double*, Space> m_from{"kformer::perf::from", count}, m_to{"kformer::perf::to", count};
};

/// What limits a case on this machine at this moment.
class LimitSamples {
 public:
  /// Seconds that a call of the case takes at least.
  double least_seconds(const Case& c) {
    double seconds = 0;
    if (c.limit != Limit::memory) seconds += c.flops / flop_rate(c.dtype);
    if (c.limit != Limit::arithmetic) seconds += c.bytes / sample(m_copy);
    return seconds;
  }

 private:
  // A host's instructions, a device's products of matrices: what its kernels are written in.
  template <class T>
  using ArithmeticRate = std::conditional_t<on_host, HostRate<T>, MatmulRate<T>>;

  double flop_rate(DType dtype) {
    return dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
      return sample(std::get<std::unique_ptr<ArithmeticRate<T>>>(m_arithmetic));
    });
  }
  template <class Rate>
  static double sample(std::unique_ptr<Rate>& rate) {
    if (!rate) rate = std::make_unique<Rate>();
    return rate->sample();
  }

  template <class... T>
  using RatesOf = std::tuple<std::unique_ptr<ArithmeticRate<T>>...>;
  RatesOf<float, double, bf16, f16> m_arithmetic;
  std::unique_ptr<CopyRate> m_copy;
};

}  // namespace kformer::perf
