// SPDX-License-Identifier: MIT
#include "app/address_space.hpp"

#include <alloca.h>
#include <sys/resource.h>
#include <unistd.h>

#include <climits>
#include <cstring>

#include "app/program.hpp"

namespace kformer::drivers {

// OpenBLAS reserves 128 MiB for each of its threads before main. Releases up to 0.3.21 wait for ever for what they
// do not get: the OpenMP build before main, the pthreads build at the end of the program.
// Sanitizers are not ready yet, either.
__attribute__((no_sanitize("address", "thread", "undefined"))) void start_in_address_space(int,
                                                                                           char** arguments,
                                                                                           char** environment) {
  rlim_t least = RLIM_INFINITY;
  for (const auto kind : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (::getrlimit(kind, &limit) == 0 && limit.rlim_cur < least) least = limit.rlim_cur;
  }
  if (least == RLIM_INFINITY) return;
  if (least < least_address_space)
    end_at_once(
        "error: the address space, or that of data, is limited to less than 512 MiB, which is too little to "
        "start; raise the limit (ulimit -v, ulimit -d)\n",
        exit_out_of_memory);
  static char one_thread[] = "OPENBLAS_NUM_THREADS=1";
  const std::size_t name = std::strlen("OPENBLAS_NUM_THREADS=");
  std::size_t variables = 0;
  for (; environment[variables] != nullptr; ++variables)
    if (std::strcmp(environment[variables], one_thread) == 0) return;
  auto** changed = static_cast<char**>(alloca((variables + 2) * sizeof(char*)));
  std::size_t kept = 0;
  changed[kept++] = one_thread;
  for (char** variable = environment; *variable != nullptr; ++variable)
    if (std::strncmp(*variable, one_thread, name) != 0) changed[kept++] = *variable;
  changed[kept] = nullptr;
  char program[PATH_MAX] = {};  // By this name, rather than as /proc/self/exe, the system lists it.
  if (::readlink("/proc/self/exe", program, sizeof program - 1) > 0) ::execve(program, arguments, changed);
}

}  // namespace kformer::drivers
