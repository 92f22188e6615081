// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>
#include <tuple>
#include <vector>

#include "kformer/core/kernel_list.hpp"
#include "support/acceptance.hpp"
#include "support/compare.hpp"
#include "support/test_tensor.hpp"

/// \file
/// The generic list test: every entry of a kernel list, on one problem. A new kernel is one file and one row in
/// its list; it is tested without new test code.

#ifndef KFORMER_TEST_SPACE
#define KFORMER_TEST_SPACE Kokkos::DefaultExecutionSpace
#endif

namespace kformer::Testing {

/// The execution space this test program was built for.
using Exec = KFORMER_TEST_SPACE;

/// Every storage type, those without double, and those of 16 bits.
using Scalars = std::tuple<float, bf16, f16, double>;
using UpToFloat = std::tuple<float, bf16, f16>;
using Halves = std::tuple<bf16, f16>;

/// Runs each entry of `list` that accepts `problem` from freshly reset outputs, with a workspace of exactly
/// the bytes it needs, and calls `verify(name)`. Also checks that no entry refuses what it must accept, that
/// guard zones stay intact and that a second run gives the same bits.
template <class Problem, class Verify>
void test_kernels(KernelList<Problem, Exec> list, const Problem& problem, const std::vector<Output*>& outputs,
                  Verify verify) {
  int ran = 0;
  for (const auto& kernel : list) {
    const std::string refusal = kernel.reject(problem);
    if (const auto must = must_accept(kernel.name, problem))
      BOOST_TEST(refusal.empty() == *must,
                 Problem::function << '[' << kernel.name << "] " << problem.operands().describe()
                                   << (*must ? " must be accepted, but: " : " must be refused") << refusal);
    if (!refusal.empty()) continue;
    ++ran;
    ++kernel_runs()[kernel.name];
    BOOST_TEST_CONTEXT(Problem::function << "[" << kernel.name << "] " << problem.operands().describe()) {
      const auto need = static_cast<std::int64_t>(kernel.workspace_bytes(problem));
      TestTensor<Exec, double> workspace({(need + 7) / 8}, Rows::packed);
      auto bytes =
          Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
              static_cast<std::byte*>(workspace.ref().data), static_cast<std::size_t>(need));
      std::vector<std::vector<unsigned char>> first;
      for (int run = 0; run < 2; ++run) {
        workspace.reset();
        for (Output* output : outputs) output->reset();
        kernel.run(Exec(), problem, bytes);
        Exec().fence("kformer::Testing::every_kernel");
        if (run == 0) {
          for (Output* output : outputs) first.push_back(output->bits());
          continue;
        }
        for (std::size_t i = 0; i < outputs.size(); ++i)
          BOOST_TEST((outputs[i]->bits() == first[i]), "output " << i << " differs between two runs");
      }
      BOOST_TEST(workspace.guards_intact(), "wrote outside its workspace");
      for (std::size_t i = 0; i < outputs.size(); ++i)
        BOOST_TEST(outputs[i]->guards_intact(), "wrote outside output " << i);
      verify(std::string(kernel.name));
    }
  }
  BOOST_TEST(ran > 0, "no kernel accepts the problem");
}

/// The same of the list of the execution space.
template <class Problem, class Verify>
void test_every_kernel(const Problem& problem, const std::vector<Output*>& outputs, Verify verify) {
  test_kernels(kernels<Problem, Exec>(), problem, outputs, verify);
}

/// The same as an object, for tests that get the kernels in question as an argument.
inline constexpr auto every_kernel = [](const auto& problem, const std::vector<Output*>& outputs, auto verify) {
  test_every_kernel(problem, outputs, verify);
};

/// Judges one output, stored as S, by the tolerance rule.
template <class S, class Real, class Naive>
void check_close(const char* what, const TestTensor<Exec, S>& out, const HostTensor<Real>& ref,
                 const HostTensor<Naive>& naive) {
  const Comparison c = compare<S>(out.template read<Real>(), ref, naive);
  BOOST_TEST(c.ok, what << ": " << c.report);
}

}  // namespace kformer::Testing
