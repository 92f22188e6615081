// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <tuple>

#include "case.hpp"
#include "measure/fma/fma_peak.hpp"
#include "measure/machine_space.hpp"

namespace kformer::perf {

/// Seconds of a loop on every thread of the space at once, each thread in its own iteration.
template <class Loop>
double seconds_on_all_threads(const Space& exec, const Loop& loop) {
  const auto launch = [&] {
    Kokkos::parallel_for("kformer::perf::fma_peak", Kokkos::RangePolicy<Space>(exec, 0, exec.concurrency()),
                         [=](int) { loop(); });
  };
  return measure::seconds_of(exec, launch);
}

/// The multiply-add rate of all threads together, in T. The clock of a processor wanders, so samples are short
/// and meant to be taken between the measurements they judge.
template <class T>
class FmaRate {
 public:
  FmaRate() {
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
    return seconds_on_all_threads(
        m_exec, [burst = m_burst, iterations = m_iterations] { burst.run(iterations, T(0.5)); });
  }

  Space m_exec;
  measure::FmaBurst<T> m_burst = measure::host_fma().burst<T>();
  std::int64_t m_iterations = 1024;
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
  // A host's multiply-adds, a device's products of matrices: what its kernels are written in.
  template <class T>
  using ArithmeticRate = std::conditional_t<on_host, FmaRate<compute_t<T>>, MatmulRate<T>>;

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

  template <class... Rates>
  using Made = std::tuple<std::unique_ptr<Rates>...>;
  std::conditional_t<on_host, Made<FmaRate<float>, FmaRate<double>>,
                     Made<MatmulRate<float>, MatmulRate<double>, MatmulRate<bf16>, MatmulRate<f16>>>
      m_arithmetic;
  std::unique_ptr<CopyRate> m_copy;
};

}  // namespace kformer::perf
