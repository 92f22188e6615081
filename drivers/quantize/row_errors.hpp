// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include "kformer/memory/ledger.hpp"
#include "kformer/model/layer_weights.hpp"
#include "quantize/tensor_errors.hpp"

namespace kformer::drivers {

/// The errors of one row, and whether it can be used.
struct RowErrors {
  TensorErrors sums;
  bool finite_before = true, finite_after = true;
};

/// The errors of each row, on the host. A row is summed by one thread, so that the sums do not depend on how
/// many there are.
template <class Exec>
std::vector<RowErrors> row_errors(const Exec& exec,
                                  const BlockMatrix<typename Exec::memory_space, double>& from,
                                  const BlockMatrix<typename Exec::memory_space, double>& to) {
  const Kokkos::View<RowErrors*, typename Exec::memory_space> rows(
      Kokkos::view_alloc(exec, Kokkos::WithoutInitializing, "kformer-quantize::row_errors"), from.extent(0));
  const auto cols = static_cast<std::int64_t>(from.extent(1));
  Kokkos::parallel_for(
      "kformer-quantize::row_errors",
      Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, from.extent(0)),
      KOKKOS_LAMBDA(std::int64_t row) {
        RowErrors errors;
        TensorErrors& s = errors.sums;
        s.weights = cols;
        for (std::int64_t i = 0; i < cols; ++i) {
          const double w = from(row, i), v = to(row, i), error = v - w;
          errors.finite_before = errors.finite_before && w - w == 0;
          errors.finite_after = errors.finite_after && v - v == 0;
          s.zeros += v == 0 ? 1 : 0;
          s.largest = Kokkos::fmax(s.largest, Kokkos::fabs(error));
          s.error_squares += error * error;
          s.from_squares += w * w;
          s.to_squares += v * v;
          s.products += v * w;
        }
        rows(row) = errors;
      });
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, rows);
  exec.fence("kformer-quantize");
  return {host.data(), host.data() + host.extent(0)};
}

}  // namespace kformer::drivers
