// SPDX-License-Identifier: MIT
#include <cstddef>
#include <string>

#include "kformer/memory/ledger.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Space = Exec::memory_space;

template <class MemorySpace = Space>
MemoryBlock<MemorySpace> take(Ledger& ledger, MemoryClass memory_class, std::size_t bytes) {
  return ledger.allocate<MemorySpace>(memory_class, "block", bytes);
}

// Host memory under another name.
struct FarSpace : Kokkos::HostSpace {
  static const char* name() { return "Far"; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ledger_limit)

BOOST_AUTO_TEST_CASE(a_block_beyond_the_limit_is_refused_before_it_is_allocated) {
  for (const auto mode : {Ledger::Mode::allocate, Ledger::Mode::count}) {
    const auto ledger = Ledger::create(mode, 2048);
    const auto held = take(*ledger, MemoryClass::weights, 1536);
    const std::string text =
        std::string("kformer::Ledger: 513 B for 'too much' (activations) in memory space ") + Space::name() +
        " would exceed the limit of 2.00 KiB, of which 1.50 KiB are booked; booked so far:\n"
        "class          current       peak\n"
        "weights         1.50 KiB   1.50 KiB\n"
        "total           1.50 KiB   1.50 KiB\n";
    const ToolsRecorder recorder;
    check_error<OutOfMemory>(
        [&] { static_cast<void>(ledger->allocate<Space>(MemoryClass::activations, "too much", 513)); }, text);
    check_error<OutOfMemory>(
        [&] { static_cast<void>(ledger->allocate(Exec(), MemoryClass::activations, "too much", 513)); }, text);
    BOOST_TEST(recorder.allocations().empty());
    BOOST_TEST(ledger->peak(MemoryClass::activations) == 0u);
    BOOST_TEST(ledger->current_total() == 1536u);
    {
      const auto last = take(*ledger, MemoryClass::activations, 512);
      BOOST_TEST(ledger->current_total() == 2048u);
      BOOST_CHECK_THROW(take(*ledger, MemoryClass::io, 1), OutOfMemory);
      BOOST_CHECK_NO_THROW(take(*ledger, MemoryClass::io, 0));
    }
    BOOST_CHECK_NO_THROW(take(*ledger, MemoryClass::io, 512));
  }
}

BOOST_AUTO_TEST_CASE(a_limit_may_be_for_one_memory_space) {
  const auto ledger = Ledger::create(Ledger::Mode::count, 1000, Space::name());
  const auto far = take<FarSpace>(*ledger, MemoryClass::activations, 5000);
  const auto near = take(*ledger, MemoryClass::weights, 600);
  BOOST_CHECK_THROW(take(*ledger, MemoryClass::weights, 401), OutOfMemory);
  {
    const auto rest = take(*ledger, MemoryClass::weights, 400);
    BOOST_TEST(ledger->current_in(Space::name()) == 1000u);
  }
  BOOST_TEST(ledger->current_in(Space::name()) == 600u);
  BOOST_TEST(ledger->peak_in(Space::name()) == 1000u);
  BOOST_TEST(ledger->current_in("Far") == 5000u);
  BOOST_TEST(ledger->current_in("nowhere") == 0u);
  BOOST_TEST(ledger->peak_total() == 6000u);
  ledger->reset_peaks();
  BOOST_TEST(ledger->peak_in(Space::name()) == 600u);
}

BOOST_AUTO_TEST_CASE(the_report_lists_memory_spaces_where_there_are_several) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const auto near = ledger->allocate<Kokkos::HostSpace>(MemoryClass::weights, "block", 100);
  take<FarSpace>(*ledger, MemoryClass::weights, 900);
  BOOST_TEST(ledger->report() ==
             "class          current       peak\n"
             "weights            100 B     1000 B\n"
             "in Far               0 B      900 B\n"
             "in Host            100 B      100 B\n"
             "total              100 B     1000 B\n");
}

BOOST_AUTO_TEST_CASE(transfers_are_counted_by_direction) {
  const auto ledger = Ledger::create();
  BOOST_TEST(ledger->transfers().empty());
  ledger->book_transfer("Host", "Far", 100);
  ledger->book_transfer("Far", "Host", 7);
  ledger->book_transfer("Host", "Far", 11);
  const auto counts = ledger->transfers();
  BOOST_REQUIRE(counts.size() == 2u);
  BOOST_TEST(counts[0].from == "Host");
  BOOST_TEST(counts[0].to == "Far");
  BOOST_TEST(counts[0].transfers == 2u);
  BOOST_TEST(counts[0].bytes == 111u);
  BOOST_TEST(counts[1].from == "Far");
  BOOST_TEST(counts[1].transfers == 1u);
  BOOST_TEST(counts[1].bytes == 7u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
