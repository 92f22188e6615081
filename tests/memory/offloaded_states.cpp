// SPDX-License-Identifier: MIT
#include "kformer/memory/offloaded_states.hpp"

#include <vector>

#include "kformer/memory/checkpointed.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {

using States = OffloadedStates<Exec>;
using Vector = Kokkos::View<double*, Exec::memory_space>;

BOOST_AUTO_TEST_SUITE(offloaded_states)

// A chain x_{i+1} = x_i + i + 1 of which two inputs exist at a time, whatever is done with its results.
BOOST_AUTO_TEST_CASE(every_step_gets_its_input_back) {
  constexpr std::size_t size = 257;
  for (const std::int64_t steps : {1, 2, 3, 7}) {
    const Exec exec;
    const auto ledger = Ledger::create();
    States states(*ledger, steps, size * sizeof(double));
    BOOST_TEST(ledger->peak(MemoryClass::activations) ==
               static_cast<std::size_t>(steps) * size * sizeof(double));
    std::vector<Vector> arrays;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(steps, 2); ++i) arrays.emplace_back("array", size);
    const CheckpointedChain<Vector> chain(RecomputeSchedule::uniform(Recompute::offload, steps), arrays);
    const Vector last("last", size), dy("dy", size), other("other", size);
    for (int pass = 0; pass < 2; ++pass) {
      Kokkos::deep_copy(exec, chain.first(), pass);
      const auto run = [&](std::int64_t i, const Vector& x, const Vector& y) {
        states.save(exec, i, x.data());
        Kokkos::parallel_for(
            "run", Kokkos::RangePolicy<Exec>(exec, 0, size),
            KOKKOS_LAMBDA(std::size_t j) { y(j) = x(j) + static_cast<double>(i + 1); });
      };
      chain.forward(run, last, last);
      std::int64_t wrong = 0;
      const auto reverse = [&](std::int64_t i, const Vector& x, const Vector&, const Vector&) {
        states.fetch(exec, i, x.data(), i > 0 ? chain.offloaded(i - 1).data() : nullptr);
        const std::int64_t added = i * (i + 1) / 2;
        const double expected = pass + static_cast<double>(added);
        std::int64_t differ = 0;
        Kokkos::parallel_reduce(
            "compare", Kokkos::RangePolicy<Exec>(exec, 0, size),
            KOKKOS_LAMBDA(std::size_t j, std::int64_t& sum) { sum += x(j) != expected; }, differ);
        wrong += differ;
      };
      chain.backward(run, reverse, dy, other, last);
      BOOST_TEST(wrong == 0, steps << " steps, pass " << pass);
    }
    exec.fence("kformer::Testing::offloaded_states");
  }
}

// All states go to host memory; the last two are still in their arrays when backward begins.
BOOST_AUTO_TEST_CASE(transfers_are_booked) {
  const Exec exec;
  const auto ledger = Ledger::create();
  States states(*ledger, 5, 64);
  const Kokkos::View<std::byte[64], Exec::memory_space> a("a"), b("b");
  const auto array = [&](std::int64_t n) { return n % 2 == 0 ? a.data() : b.data(); };
  for (std::int64_t n = 0; n < 5; ++n) states.save(exec, n, array(n));
  for (std::int64_t n = 5; n-- > 0;) states.fetch(exec, n, array(n), n > 0 ? array(n - 1) : nullptr);
  std::size_t bytes = 0;
  for (const auto& t : ledger->transfers()) bytes += t.bytes;
  BOOST_TEST(bytes == (5 + 3) * 64u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
