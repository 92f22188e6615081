// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstdint>

#include "common/fma_kernel.hpp"
#include "common/sampling.hpp"
#include "kformer/core/scalar.hpp"

namespace kformer::drivers {

/// The fused multiply-add rate of all threads of a host space together: the limit that shares of peak refer to.
/// The clock of a processor wanders, so samples are meant to be taken between the measurements they judge.
template <class Exec>
  requires(bool(Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible))
class FmaPeak {
 public:
  /// For what is stored as `dtype`: in double for f64, otherwise in float. A sample takes about `sample_s`.
  FmaPeak(const Exec& exec, DType dtype, double sample_s = 0.01)
      : m_exec(exec), m_in_double(compute_dtype(dtype) == DType::f64) {
    constexpr double warm_up_s = 0.001;
    while (seconds() < warm_up_s) m_rounds *= 2;
    m_rounds = static_cast<std::int64_t>(static_cast<double>(m_rounds) * sample_s / seconds()) + 1;
  }

  /// FLOP/s.
  double sample() const {
    const FmaKernel& kernel = best_fma_kernel();
    const double per_round = m_in_double ? kernel.flops_per_round_f64 : kernel.flops_per_round_f32;
    return per_round * static_cast<double>(m_rounds) * m_exec.concurrency() / seconds();
  }

 private:
  double seconds() const {
    // One iteration for each thread.
    const auto launch = [this] {
      double sum = 0;
      Kokkos::parallel_reduce(
          "kformer::drivers::FmaPeak", Kokkos::RangePolicy<Exec>(m_exec, 0, m_exec.concurrency()),
          [rounds = m_rounds, in_double = m_in_double](int, double& total) {
            const FmaKernel& kernel = best_fma_kernel();
            total += in_double ? kernel.run_f64(rounds) : static_cast<double>(kernel.run_f32(rounds));
          },
          sum);
    };
    return seconds_of(m_exec, launch);
  }

  Exec m_exec;
  bool m_in_double;
  std::int64_t m_rounds = 1024;
};

}  // namespace kformer::drivers
