// SPDX-License-Identifier: MIT
#include "app/start_kokkos.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "kformer/core/device.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/kernel_list.hpp"

namespace kformer::drivers {

namespace {

// Kokkos says the same in four lines, in every run.
void note_unbound_threads([[maybe_unused]] std::vector<std::string>& arguments) {
#ifdef KOKKOS_ENABLE_OPENMP
  if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("KOKKOS_DISABLE_WARNINGS") != nullptr) return;
  for (const std::string& argument : arguments)
    if (argument.starts_with("--kokkos-disable-warnings")) return;
  arguments.emplace_back("--kokkos-disable-warnings");
  fmt::print(
      stderr,
      "note: threads may move between cores; times vary less with OMP_PROC_BIND=spread OMP_PLACES=threads\n");
#endif
}

}  // namespace

void require_device() {
  if (const std::string why = missing_device(); !why.empty()) throw NotSupported(why);
}

std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const std::string& program, std::vector<std::string> arguments,
                                                 std::int64_t threads) {
  Impl::check_forced_kernels();
  arguments.insert(arguments.begin(), program);
  note_unbound_threads(arguments);
  if (threads > 0) arguments.push_back("--kokkos-num-threads=" + std::to_string(threads));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  return std::make_unique<Kokkos::ScopeGuard>(argc, argv.data());
}

}  // namespace kformer::drivers
