// SPDX-License-Identifier: MIT
#include "emulated_cuda/emulation.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kformer::Impl::cuda::emulation {

void fail(const char* what) {
  std::fprintf(stderr, "kformer: emulated CUDA block: %s\n", what);
  std::abort();
}

constinit thread_local Block* Block::s_current = nullptr;

Block::Block(int threads, std::size_t shared_bytes, const std::function<void()>& body)
    : m_body(body),
      m_fibers(static_cast<std::size_t>(threads)),
      m_stacks(new char[m_fibers.size() * stack_bytes]),  // most of it is never touched
      m_warps(static_cast<std::size_t>((threads + warp_threads - 1) / warp_threads)),
      m_shared(shared_bytes) {}

void Block::run_grid(int blocks, int threads, std::size_t shared_bytes, const std::function<void()>& body) {
  if (threads % warp_threads != 0) fail("its threads are not whole warps");
  Block block(threads, shared_bytes, body);
  s_current = &block;
  for (int number = 0; number < blocks; ++number) block.run(number);
  s_current = nullptr;
}

void Block::run(int number) {
  m_number = number;
  std::ranges::fill(m_shared, std::byte{0xff});
  m_left = static_cast<int>(m_fibers.size());
  char* stack = m_stacks.get();
  for (Fiber& fiber : m_fibers) {
    fiber.done = fiber.started = false;
    fiber.fenced = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = std::exchange(stack, stack + stack_bytes);
    fiber.context.uc_stack.ss_size = stack_bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
  }
  // Who runs first may run ahead until a barrier stops it: in every other block the last thread does.
  m_forward = number % 2 == 0;
  m_running = m_forward ? 0 : m_left - 1;
  m_fibers[m_running].started = true;
  swapcontext(&m_outside, &m_fibers[m_running].context);
  for (Fiber& fiber : m_fibers)
    for (const Groups& g : fiber.in_flight)
      if (!g.open_group.empty() || !g.groups.empty()) fail("it ended with copies or products in flight");
  if (!m_deliveries.empty()) fail("it ended with copies of tiles in flight");
  for (const Barrier& b : m_barriers)
    if (b.arrived > 0) fail("threads arrived at a barrier that nobody waits at");
}

void Block::enter() {
  Block& block = current();
  block.m_body();
  block.m_fibers[block.m_running].done = true;
  ++block.m_steps;
  if (--block.m_left == 0) setcontext(&block.m_outside);
  block.yield(block.threads());
}

// Jumps, once a fiber has its stack: they make no system call, which contexts do.
void Block::go_on() {
  Fiber& fiber = m_fibers[m_running];
  if (fiber.started) _longjmp(fiber.place, 1);
  fiber.started = true;
  setcontext(&fiber.context);
  fail("a thread could not start");
}

void Block::yield(int threads) {
  m_idle = m_steps == m_last_steps ? m_idle + 1 : 0;
  m_last_steps = m_steps;
  if (m_idle > 4 * this->threads()) fail("all threads wait");
  if (m_idle > 2 * threads) threads = this->threads();  // others of this group wait for something else
  const int from = m_running, first = from / threads * threads;
  do m_running = first + (m_running - first + (m_forward ? 1 : threads - 1)) % threads;
  while (m_fibers[m_running].done);
  if (m_running == from || _setjmp(m_fibers[from].place) != 0) return;
  go_on();
}

void Block::check_global(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) fail("an address in memory is not aligned");
}

bool Block::any(int id, int count, bool mine) {
  m_any[id] = m_any[id] || mine;
  barrier(id, count);
  const bool result = m_any[id];
  barrier(id, count);
  m_any[id] = false;
  barrier(id, count);
  return result;
}

void Block::barrier(int id, int count) {
  const Barrier& b = m_barriers[id];
  const std::int64_t meeting = b.meetings;
  arrive(id, count);
  while (b.meetings == meeting) yield(threads());
}

void Block::arrive(int id, int count) {
  Barrier& b = m_barriers[id];
  ++m_steps;
  if (++b.arrived == count) {
    b.arrived = 0;
    ++b.meetings;
  }
}

const std::byte* Block::exchange_bytes(const void* mine, std::size_t bytes) {
  Warp& warp = m_warps[static_cast<std::size_t>(m_running / warp_threads)];
  const std::int64_t meeting = warp.meetings;
  // Two sets of slots: who comes to the next meeting does not overwrite what others still read.
  std::byte* slots = warp.slots[meeting % 2];
  std::memcpy(slots + static_cast<std::size_t>(m_running % warp_threads) * bytes, mine, bytes);
  ++m_steps;
  if (++warp.arrived == warp_threads) {
    warp.arrived = 0;
    ++warp.meetings;
  }
  while (warp.meetings == meeting) yield(warp_threads);
  return slots;
}

void Block::later(std::function<void()> f, Flight kind) {
  if (kind == Flight::copies && m_number / 2 % 2 != 0)
    f();
  else
    flight(kind).open_group.push_back(std::move(f));
}

void Block::commit_group(Flight kind) {
  Groups& g = flight(kind);
  g.groups.push_back(std::move(g.open_group));
  g.open_group.clear();
}

void Block::wait_groups(int left, Flight kind) {
  std::vector<Group>& groups = flight(kind).groups;
  while (static_cast<int>(groups.size()) > left) {
    for (const auto& f : groups.front()) f();
    groups.erase(groups.begin());
  }
}

void Block::deliver(std::uint32_t address) {
  std::erase_if(m_deliveries, [&](const auto& delivery) {
    if (delivery.first != address) return false;
    delivery.second();
    return true;
  });
}

}  // namespace kformer::Impl::cuda::emulation
