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

  template <class P>
  void operator()(const P& problem, const std::vector<Output*>& outputs,
                  const std::function<void(const std::string&)>& verify) const {
    test_kernels<P>({&std::get<Kernel<P, Exec>>(kernels), 1}, problem, outputs, verify);
  }
};

}  // namespace kformer::Testing
