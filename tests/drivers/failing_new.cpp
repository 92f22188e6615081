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

void* memory_or_null(std::size_t bytes) {
  void* const memory = next_fails ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) next_fails = 0;
  return memory;
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* const memory = memory_or_null(bytes)) return memory;
  throw std::bad_alloc();
}

// That of a sanitizer takes no memory from the one above, and its delete is the one below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return memory_or_null(bytes); }

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
