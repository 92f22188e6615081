// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
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

/// An instance of one thread of OpenMP; the default instance of other spaces. `partition_space` gives that of
/// OpenMP, too, where parallel regions do not nest.
template <class Space = Exec>
Space one_thread() {
#ifdef KOKKOS_ENABLE_OPENMP
  if constexpr (std::is_same_v<Space, Kokkos::OpenMP>) return Space(1);
#endif
  return Space();
}

// In every_kernel.cpp.
extern template class TestMemory<Exec::memory_space>;
extern template class TestTensor<Exec, float>;
extern template class TestTensor<Exec, bf16>;
extern template class TestTensor<Exec, f16>;
extern template class TestTensor<Exec, double>;
extern template class TestTensor<Exec, std::int32_t>;
extern template class TestTensor<Exec, std::uint8_t>;

/// Every storage type, those without double, and those of 16 bits.
using Scalars = std::tuple<float, bf16, f16, double>;
using UpToFloat = std::tuple<float, bf16, f16>;
using Halves = std::tuple<bf16, f16>;

/// A kernel with a problem, whose type plays no part any more.
struct KernelCase {
  std::string function, kernel, operands;
  std::string refusal;              ///< of `reject`
  std::optional<bool> must_accept;  ///< see acceptance.hpp
  std::function<std::int64_t()> workspace_bytes;
  std::function<void(const Workspace&)> run;
};

/// Runs the kernel if it accepts the problem, from freshly reset outputs, with a workspace of exactly the bytes
/// it needs, and calls `verify(name)`. Also checks that it does not refuse what it must accept, that guard zones
/// stay intact and that a second run gives the same bits. Returns whether it ran.
bool test_kernel(const KernelCase& c, const std::vector<Output*>& outputs,
                 const std::function<void(const std::string&)>& verify);

/// The same of each entry of `list`, of which at least one must run.
template <class Problem>
void test_kernels(KernelList<Problem, Exec> list, const Problem& problem, const std::vector<Output*>& outputs,
                  const std::function<void(const std::string&)>& verify) {
  const std::string operands = problem.operands().describe();
  bool ran = false;
  for (const auto& kernel : list)
    ran |= test_kernel(
        {Problem::function, kernel.name, operands, kernel.reject(problem), must_accept(kernel.name, problem),
         [&] { return static_cast<std::int64_t>(kernel.workspace_bytes(problem)); },
         [&](const Workspace& workspace) { kernel.run(Exec(), problem, workspace); }},
        outputs, verify);
  BOOST_TEST(ran, "no kernel accepts the problem");
}

/// The same of the list of the execution space.
template <class Problem>
void test_every_kernel(const Problem& problem, const std::vector<Output*>& outputs,
                       const std::function<void(const std::string&)>& verify) {
  test_kernels(kernels<Problem, Exec>(), problem, outputs, verify);
}

/// The same as an object, for tests that get the kernels in question as an argument.
inline constexpr auto every_kernel = [](const auto& problem, const std::vector<Output*>& outputs,
                                        const std::function<void(const std::string&)>& verify) {
  test_every_kernel(problem, outputs, verify);
};

/// The test of what was judged.
void check_close(const std::string& what, const Comparison& c);

/// Judges values that were stored as S by the tolerance rule.
template <class S, class Real, class Naive>
void check_close(const std::string& what, const HostTensor<Real>& out, const HostTensor<Real>& ref,
                 const HostTensor<Naive>& naive) {
  check_close(what, compare<S>(out, ref, naive));
}

/// The same by what the naive computation says of itself.
template <class S, class Real, class C>
void check_close(const std::string& what, const HostTensor<Real>& out,
                 const HostTensor<kformer::Impl::Estimated<C>>& naive) {
  check_close<S>(what, out, exact_values(naive), naive);
}

/// The same of an output.
template <class S, class C>
void check_close(const std::string& what, const TestTensor<Exec, S>& out,
                 const HostTensor<kformer::Impl::Estimated<C>>& naive) {
  check_close<S>(what, out.template read<typename kformer::Impl::Estimated<C>::Value>(), naive);
}

/// Judges an output, whose oracle was computed apart.
template <class S, class Real, class Naive>
void check_close(const char* what, const TestTensor<Exec, S>& out, const HostTensor<Real>& ref,
                 const HostTensor<Naive>& naive) {
  check_close<S>(what, out.template read<Real>(), ref, naive);
}

}  // namespace kformer::Testing
