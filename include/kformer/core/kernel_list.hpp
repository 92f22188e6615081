// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "kformer/core/arguments.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/workspace.hpp"

/// \file
/// Kernel lists: how tuned code plugs in without ifdefs.
///
/// Each pair of problem type and execution space has one ordered list: best first, reference last. `choose`
/// takes the first entry that does not reject the problem.
///
/// * `KFORMER_KERNEL=attention:kokkos` (several separated by commas) forces the entry of that name for every
///   function of an op, and throws if it refuses. A function whose list lacks the name, where another function
///   of the op has it, makes its usual choice: `linear:simd_avx2` leaves `linear_backward_bias` alone. One
///   function is forced by its own name, `attention_forward:kokkos`, which takes precedence over the op's
///   name. An op that does not exist, and a name in no list of its op, are errors that list what there is.
/// * `KFORMER_VERBOSE=1` prints each choice and each refusal to standard error.

namespace kformer {

/// One way to solve `Problem` on `Exec`.
template <class Problem, class Exec>
struct Kernel {
  const char* name;                                ///< unique within its list, e.g. "kokkos"
  std::string (*reject)(const Problem&);           ///< empty if it can, otherwise the reason in one sentence
  std::size_t (*workspace_bytes)(const Problem&);  ///< exact need
  void (*run)(const Exec&, const Problem&,
              const Workspace& workspace);  ///< launches on the instance, asynchronously
};

/// An ordered kernel list, best first.
template <class Problem, class Exec>
using KernelList = std::span<const Kernel<Problem, Exec>>;

/// The kernel list of a problem type on an execution space; defined in the compiled library for every space
/// that the library was built for.
template <class Problem, class Exec>
KernelList<Problem, Exec> kernels();

/// `reject` of an entry that solves everything.
template <class Problem>
std::string never_rejects(const Problem&) {
  return {};
}

/// `workspace_bytes` of an entry that needs none.
template <class Problem>
std::size_t no_workspace(const Problem&) {
  return 0;
}

/// Forces kernels for the calling thread during its lifetime; takes precedence over KFORMER_KERNEL.
class ForcedKernels {
 public:
  /// `choice` has the form of KFORMER_KERNEL: `linear:kokkos,attention:reference`.
  explicit ForcedKernels(std::string choice);
  ~ForcedKernels();
  ForcedKernels(const ForcedKernels&) = delete;             ///< a choice is a scope
  ForcedKernels& operator=(const ForcedKernels&) = delete;  ///< a choice is a scope

 private:
  std::string m_choice;
  const std::string* m_previous;
};

/// Notified of every choice: the op (`"attention"`), the direction (`"attention_forward"`) and the entry's
/// name. Used by drivers to record which kernels ran.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  /// Called from the thread that makes the choice.
  virtual void chosen(const char* op, const char* function, const char* kernel) = 0;
};

/// Installs `observer` (or none, with nullptr) for the calling thread and returns the previous one.
KernelObserver* set_kernel_observer(KernelObserver* observer);

namespace Impl {
/// Whether KFORMER_KERNEL or a scope forces any kernel.
bool kernels_are_forced();
/// Makes the name of an entry known to KFORMER_KERNEL.
void make_known(const char* op, const char* function, const char* kernel);
/// The same for every entry of a list. The library calls it for each of its own lists.
template <class Problem, class Exec>
bool make_known(KernelList<Problem, Exec> list) {
  for (const auto& kernel : list) make_known(Problem::op, Problem::function, kernel.name);
  return true;
}
/// For programs, before they work.
/// \throws NotSupported if KFORMER_KERNEL names an op or a kernel that is not known
void check_forced_kernels();
/// The name KFORMER_KERNEL forces for this function, or an empty string.
/// \throws NotSupported for an op or a name that is not known
std::string forced_kernel(const char* op, const char* function);
void report_choice(const char* op, const char* function, const char* kernel);
void report_refusal(const char* function, const char* kernel, const std::string& reason);
[[noreturn]] void throw_no_kernel(const char* function, const std::string& forced, const std::string& reasons);
}  // namespace Impl

/// The first entry of `list` that does not reject `problem`, or the entry that KFORMER_KERNEL forces.
/// `Problem` names itself: `static constexpr const char* op`, `function`.
/// \throws NotSupported with every refusal, if no entry remains
template <class Problem, class Exec>
const Kernel<Problem, Exec>& choose(KernelList<Problem, Exec> list, const Problem& problem) {
  std::string forced, reasons;
  if (Impl::kernels_are_forced()) {
    Impl::make_known(list);
    forced = Impl::forced_kernel(Problem::op, Problem::function);
  }
  for (const auto& kernel : list) {
    if (!forced.empty() && forced != kernel.name) continue;
    const std::string reason = kernel.reject(problem);
    if (reason.empty()) {
      Impl::report_choice(Problem::op, Problem::function, kernel.name);
      return kernel;
    }
    Impl::report_refusal(Problem::function, kernel.name, reason);
    reasons += std::string(reasons.empty() ? "" : "; ") + kernel.name + ": " + reason;
  }
  Impl::throw_no_kernel(Problem::function, forced, reasons);
}

namespace Impl {
/// Common to all public functions once the operands are checked: choose, check the workspace, run.
template <class Exec, class Problem>
void run_best(const Exec& exec, const Problem& problem, const Workspace& workspace = {}) {
  const auto& kernel = choose<Problem, Exec>(kernels<Problem, Exec>(), problem);
  const std::size_t needed = kernel.workspace_bytes(problem);
  if (!workspace.suffices(needed)) problem.operands().require_workspace(workspace, needed);
  kernel.run(exec, problem, workspace);
}

/// What a public function does with its problem: check, as plans do, require memory, then `run_best`.
template <class Exec, class Problem>
void call(const Exec& exec, const Problem& problem, const Workspace& workspace = {}) {
  problem.check();
  problem.operands().require_addresses();
  run_best(exec, problem, workspace);
}

/// The result of every `_workspace_bytes` function: the bytes that the chosen kernel needs.
template <class Exec, class Problem>
std::size_t best_workspace_bytes(const Problem& problem) {
  return choose<Problem, Exec>(kernels<Problem, Exec>(), problem).workspace_bytes(problem);
}
}  // namespace Impl

}  // namespace kformer
