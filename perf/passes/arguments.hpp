// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/isa.hpp"
#include "ops/common/simd/rows.hpp"

/// \file
/// The passes of the unfused forms as SIMD kernels see them. Free of Kokkos.

namespace kformer::perf {

/// `y = a + b` or `y = a · b`; `y` may be `a`.
struct PairArguments {
  Impl::host::InputRows a, b;
  Impl::host::OutputRows y;
};

/// `y = rotate_half(x)`: of each head the negative second half, then the first one.
struct RotateHalfArguments {
  Impl::host::InputRows x;
  Impl::host::OutputRows y;
  std::int64_t columns, half;
};

/// `y = x · cos + rotated · sin`, row `r` by row `r % positions` of the tables.
struct ApplyRotationArguments {
  Impl::host::InputRows x, rotated, cos, sin;  // the tables in the type of arithmetic
  Impl::host::OutputRows y;
  std::int64_t columns, half, positions;
};

/// The kernels of one instruction set and storage type.
struct PassKernels {
  void (*sum)(const PairArguments&, const Impl::host::Block&);
  void (*product)(const PairArguments&, const Impl::host::Block&);
  void (*rotate_half)(const RotateHalfArguments&, std::int64_t first_row, std::int64_t end);
  void (*apply_rotation)(const ApplyRotationArguments&, std::int64_t first_row, std::int64_t end);
};

template <Impl::host::Isa isa>
const PassKernels& pass_kernels(DType storage);

}  // namespace kformer::perf
