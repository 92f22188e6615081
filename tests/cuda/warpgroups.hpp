// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>
#include <cstdio>

#include "ops/common/cuda/device.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Where the kernels of sm_90a run: on emulated blocks, and on devices of compute capability 9.0 alone.

namespace kformer::Testing {

constexpr bool has_warpgroups(bool emulated, int capability) { return emulated || capability == 90; }

inline bool has_warpgroups() {
  return has_warpgroups(Impl::is_host_space<Exec>, Impl::cuda::Device<Exec>::capability());
}

/// The precondition that they run here.
struct HasWarpgroups {
  boost::test_tools::assertion_result operator()(boost::unit_test::test_unit_id) const {
    if (has_warpgroups()) return true;
    std::puts("skipped: the kernels of sm_90a need a device of compute capability 9.0");
    return false;
  }
};

}  // namespace kformer::Testing
