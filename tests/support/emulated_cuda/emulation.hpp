// SPDX-License-Identifier: MIT
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

/// \file
/// A block of CUDA threads on one thread of the host, so that kernels can be compared with the reference where
/// there is no device. Threads are fibers that run until they have to wait. The guarantees of instructions are
/// kept, and no more: a copy in flight arrives at once or not before it is waited for, shared memory starts as
/// NaN, and a block whose threads all wait is an error.

namespace kformer::Impl::cuda::emulation {

inline constexpr int warp_threads = 32;

/// A fault of a kernel under test: nothing after it would mean anything.
[[noreturn]] void fail(const char* what);

/// What a thread can have in flight.
enum class Flight { copies, products };

class Block {
 public:
  /// Runs `body` once per thread of every block of the grid.
  static void run_grid(int blocks, int threads, std::size_t shared_bytes, const std::function<void()>& body);

  static Block& current() { return *s_current; }
  int thread() const { return m_running; }
  int number() const { return m_number; }
  int threads() const { return static_cast<int>(m_fibers.size()); }
  std::byte* shared(std::uint32_t address, std::size_t bytes) {
    if (address % bytes != 0) fail("an address in shared memory is not aligned");
    if (address + bytes > m_shared.size()) fail("an address is outside its shared memory");
    return m_shared.data() + address;
  }
  /// A load from memory of the device has to be aligned to its size.
  static void check_global(const void* address, std::size_t bytes);

  /// Waits until `count` threads have come to barrier `id`.
  void barrier(int id, int count);
  /// Comes to it without waiting.
  void arrive(int id, int count);

  /// Waits for all threads; returns whether one of them voted for it.
  bool any(bool mine) { return any(0, threads(), mine); }
  /// The same of the `count` threads that come to barrier `id`.
  bool any(int id, int count, bool mine);

  /// Lets other threads run until it is so.
  template <class F>
  void wait_until(F condition) {
    while (!condition()) yield(threads());
    ++m_steps;
  }

  /// Waits for the other threads of the warp; what each of them brought, by lane.
  template <class T>
  const T* exchange(const T& mine) {
    static_assert(sizeof(T) <= slot_bytes && alignof(T) <= 16);
    return reinterpret_cast<const T*>(exchange_bytes(&mine, sizeof(T)));
  }

  /// `f` is done at the latest when its group is waited for: then in one half of the blocks, at once in the
  /// other; of products always then.
  void later(std::function<void()> f, Flight kind = Flight::copies);
  void commit_group(Flight kind = Flight::copies);
  void wait_groups(int left, Flight kind = Flight::copies);

  /// `f` is done when some thread asks what has come to `address`.
  void deliver_later(std::uint32_t address, std::function<void()> f) {
    m_deliveries.emplace_back(address, std::move(f));
  }
  void deliver(std::uint32_t address);

  /// Of this thread: whether its registers are fenced for products, and the accumulators of those in flight.
  bool& fenced() { return m_fibers[m_running].fenced; }
  std::vector<const void*>& accumulators() { return m_fibers[m_running].accumulators; }

 private:
  static constexpr std::size_t slot_bytes = 64, stack_bytes = 128 << 10;
  using Group = std::vector<std::function<void()>>;
  struct Groups {
    Group open_group;
    std::vector<Group> groups;
  };
  struct Fiber {
    ucontext_t context;
    jmp_buf place;
    bool started = false, done = false;
    Groups in_flight[2];
    bool fenced = false;
    std::vector<const void*> accumulators;
  };
  struct Warp {
    alignas(16) std::byte slots[2][warp_threads * slot_bytes];
    int arrived = 0;
    std::int64_t meetings = 0;
  };
  struct Barrier {
    int arrived = 0;
    std::int64_t meetings = 0;
  };

  Block(int threads, std::size_t shared_bytes, const std::function<void()>& body);
  void run(int number);
  static void enter();
  [[noreturn]] void go_on();
  /// Lets the next of this thread's group of `threads` run: a warp goes on alone until all of it waits.
  void yield(int threads);
  Groups& flight(Flight kind) { return m_fibers[m_running].in_flight[static_cast<int>(kind)]; }
  const std::byte* exchange_bytes(const void* mine, std::size_t bytes);

  static constinit thread_local Block* s_current;
  const std::function<void()>& m_body;
  std::vector<Fiber> m_fibers;
  std::unique_ptr<char[]> m_stacks;
  std::vector<Warp> m_warps;
  std::vector<std::byte> m_shared;
  Barrier m_barriers[16];
  bool m_any[16] = {};
  std::vector<std::pair<std::uint32_t, std::function<void()>>> m_deliveries;
  ucontext_t m_outside;
  int m_number = 0;
  std::int64_t m_steps = 0, m_last_steps = 0;
  int m_running = 0, m_left = 0, m_idle = 0;
  bool m_forward = true;
};

}  // namespace kformer::Impl::cuda::emulation
