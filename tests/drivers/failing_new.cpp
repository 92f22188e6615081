// SPDX-License-Identifier: MIT
// Loaded before the libraries of a program: after SIGRTMIN its next allocation by `new` fails, as where memory runs out.
// The programs answer SIGUSR2 themselves.
#include <csignal>
#include <cstdlib>
#include <new>

namespace {

volatile std::sig_atomic_t next_fails = 0;

__attribute__((constructor)) void listen() {
  std::signal(SIGRTMIN, [](int) { next_fails = 1; });
}

}  // namespace

void* operator new(std::size_t bytes) {
  void* const memory = next_fails ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (memory) return memory;
  next_fails = 0;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
