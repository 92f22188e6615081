// SPDX-License-Identifier: MIT
#include "fuzz/held_bytes.hpp"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace kformer::Testing {

namespace {

// Zero before any constructor runs.
std::atomic<std::size_t> held, most_held;

void* counted(void* memory) {
  if (memory == nullptr) return nullptr;
  const std::size_t bytes = malloc_usable_size(memory), now = held.fetch_add(bytes) + bytes;
  std::size_t before = most_held;
  while (before < now && !most_held.compare_exchange_weak(before, now)) {
  }
  return memory;
}

void* take(std::size_t size) { return counted(std::malloc(std::max<std::size_t>(size, 1))); }

void* take(std::size_t size, std::align_val_t alignment) {
  void* memory = nullptr;
  return posix_memalign(&memory, std::max(static_cast<std::size_t>(alignment), sizeof(void*)), size) == 0
             ? counted(memory)
             : nullptr;
}

void* required(void* memory) { return memory != nullptr ? memory : throw std::bad_alloc(); }

void give_back(void* memory) {
  if (memory != nullptr) held -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

HeldBytes::HeldBytes() : m_before(held) { most_held = m_before; }

std::size_t HeldBytes::most() const { return std::max<std::size_t>(most_held, m_before) - m_before; }

}  // namespace kformer::Testing

// All of them: a sanitizer has operators of its own for those that are left.
using kformer::Testing::give_back;
using kformer::Testing::required;
using kformer::Testing::take;

void* operator new(std::size_t size) { return required(take(size)); }
void* operator new[](std::size_t size) { return required(take(size)); }
void* operator new(std::size_t size, std::align_val_t to) { return required(take(size, to)); }
void* operator new[](std::size_t size, std::align_val_t to) { return required(take(size, to)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return take(size); }
void* operator new(std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return take(size, to);
}
void* operator new[](std::size_t size, std::align_val_t to, const std::nothrow_t&) noexcept {
  return take(size, to);
}
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { give_back(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept { give_back(memory); }
void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept { give_back(memory); }
