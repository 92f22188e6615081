// SPDX-License-Identifier: MIT
#include "app/start_kokkos.hpp"

#include "kformer/core/device.hpp"
#include "kformer/core/error.hpp"

namespace kformer::drivers {

void require_device() {
  if (const std::string why = missing_device(); !why.empty()) throw NotSupported(why);
}

std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const std::string& program, std::vector<std::string> arguments,
                                                 std::int64_t threads) {
  arguments.insert(arguments.begin(), program);
  if (threads > 0) arguments.push_back("--kokkos-num-threads=" + std::to_string(threads));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  return std::make_unique<Kokkos::ScopeGuard>(argc, argv.data());
}

}  // namespace kformer::drivers
