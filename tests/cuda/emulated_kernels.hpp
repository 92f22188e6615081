// SPDX-License-Identifier: MIT
#pragma once

#include <tuple>

#include "support/every_kernel.hpp"

/// \file
/// CUDA kernels alone, without the rest of their lists.

namespace kformer::Testing {

/// As `test_every_kernel`, with one kernel for each type of problem.
template <class... Problem>
struct EmulatedKernels {
  std::tuple<Kernel<Problem, Exec>...> kernels;

  constexpr explicit EmulatedKernels(const Kernel<Problem, Exec>&... kernel) : kernels(kernel...) {}

  template <class P, class Verify>
  void operator()(const P& problem, const std::vector<Output*>& outputs, Verify verify) const {
    test_kernels({&std::get<Kernel<P, Exec>>(kernels), 1}, problem, outputs, verify);
  }
};

}  // namespace kformer::Testing
