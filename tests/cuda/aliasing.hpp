// SPDX-License-Identifier: MIT
#pragma once

#include "support/every_kernel.hpp"

/// \file
/// Outputs that alias inputs.

namespace kformer::Testing {

/// `aliased` is `problem` with what it puts into `output` put into `input`: the bits are the same, also of
/// `others`.
template <class Kernel, class Problem>
void check_aliasing(const Kernel& kernel, const Problem& problem, Output& output, const Problem& aliased,
                    Output& input, const std::vector<Output*>& others) {
  const auto results = [&](const Problem& p, Output& of) {
    std::vector<Output*> outputs{&of};
    outputs.insert(outputs.end(), others.begin(), others.end());
    std::vector<std::vector<unsigned char>> bits;
    test_kernels<Problem>({&kernel, 1}, p, outputs, [&](const std::string&) {
      for (const Output* one : outputs) bits.push_back(one->bits());
    });
    input.reset();
    return bits;
  };
  BOOST_TEST((results(aliased, input) == results(problem, output)));
}

}  // namespace kformer::Testing
