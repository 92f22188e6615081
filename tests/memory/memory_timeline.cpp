// SPDX-License-Identifier: MIT
#include "kformer/memory/memory_timeline.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "kformer/memory/ledger.hpp"

namespace kformer::Testing {
namespace {

MemoryMoment moment(double seconds, std::size_t total) {
  MemoryMoment result;
  result.seconds = seconds;
  result.bytes[0] = total;
  result.total = total;
  return result;
}

auto block(Ledger& ledger, MemoryClass memory_class, std::size_t bytes) {
  return ledger.allocate<Kokkos::HostSpace>(memory_class, "block", bytes);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(memory_timeline)

BOOST_AUTO_TEST_CASE(few_changes_are_all_there) {
  MemoryTimeline timeline(4);
  BOOST_TEST(timeline.moments().empty());
  const std::vector<std::size_t> totals{10, 30, 20, 0};
  for (std::size_t i = 0; i < totals.size(); ++i) timeline.add(moment(static_cast<double>(i), totals[i]));
  const auto moments = timeline.moments();
  BOOST_REQUIRE(moments.size() == totals.size());
  for (std::size_t i = 0; i < totals.size(); ++i) {
    BOOST_TEST(moments[i].seconds == static_cast<double>(i));
    BOOST_TEST(moments[i].total == totals[i]);
    BOOST_TEST(moments[i].bytes[0] == totals[i]);
  }
}

BOOST_AUTO_TEST_CASE(of_many_changes_entries_show_the_peaks_at_even_distances) {
  std::mt19937_64 random(3);
  for (const std::size_t places : {1u, 2u, 7u, 64u})
    for (const std::size_t changes : {1u, 3u, 64u, 65u, 1000u, 4097u}) {
      MemoryTimeline timeline(places);
      std::vector<std::size_t> totals;
      for (std::size_t i = 0; i < changes; ++i) {
        totals.push_back(random() % 1000000);
        timeline.add(moment(static_cast<double>(i), totals.back()));
      }
      const std::size_t most = std::max<std::size_t>(2, places + places % 2);
      std::size_t stride = 1;  // changes that an entry stands for
      while (most * stride < changes) stride *= 2;
      std::vector<std::size_t> wanted;
      for (std::size_t i = 0; i < changes; i += stride)
        wanted.push_back(
            *std::max_element(totals.begin() + static_cast<std::ptrdiff_t>(i),
                              totals.begin() + static_cast<std::ptrdiff_t>(std::min(i + stride, changes))));
      const auto moments = timeline.moments();
      BOOST_TEST_CONTEXT(places << " places, " << changes << " changes") {
        BOOST_REQUIRE((moments.size() == wanted.size() || moments.size() == wanted.size() + 1));
        for (std::size_t i = 0; i < wanted.size(); ++i) BOOST_TEST(moments[i].total == wanted[i]);
        BOOST_TEST(moments.back().total == totals.back());
        BOOST_TEST(moments.back().seconds == static_cast<double>(changes - 1));
      }
    }
}

BOOST_AUTO_TEST_CASE(a_ledger_records_when_it_is_asked_to) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const auto before = block(*ledger, MemoryClass::weights, 100);
  BOOST_TEST(ledger->timeline().empty());
  ledger->record_timeline();
  block(*ledger, MemoryClass::io, 30);
  const auto moments = ledger->timeline();
  BOOST_REQUIRE(moments.size() == 3u);
  const std::size_t io[] = {0, 30, 0};
  double seconds = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(moments[i].bytes[static_cast<std::size_t>(MemoryClass::weights)] == 100u);
    BOOST_TEST(moments[i].bytes[static_cast<std::size_t>(MemoryClass::io)] == io[i]);
    BOOST_TEST(moments[i].total == 100 + io[i]);
    BOOST_TEST(moments[i].seconds >= seconds);
    seconds = moments[i].seconds;
  }
}

// As many changes as 12,500 steps with 4 blocks make.
BOOST_AUTO_TEST_CASE(a_long_training_needs_no_more_memory_and_keeps_its_peaks) {
  constexpr int steps = 12500;
  const std::vector<int> high{0, 1, 2048, 4095, 4096, 9999, steps - 1};
  const auto ledger = Ledger::create(Ledger::Mode::count);
  ledger->record_timeline();
  for (int step = 0; step < steps; ++step) {
    const bool is_high = std::ranges::find(high, step) != high.end();
    const auto a = block(*ledger, MemoryClass::weights, 10), b = block(*ledger, MemoryClass::workspace, 20),
               c = block(*ledger, MemoryClass::activations, 30),
               d = block(*ledger, MemoryClass::io, is_high ? 1000 + static_cast<std::size_t>(step) : 1);
  }
  const auto moments = ledger->timeline();
  BOOST_TEST(moments.size() <= 4097u);
  BOOST_TEST(moments.size() > 2048u);
  std::size_t found = 0, largest = 0;
  for (const MemoryMoment& m : moments) {
    largest = std::max(largest, m.total);
    found += m.bytes[static_cast<std::size_t>(MemoryClass::io)] >= 1000;
  }
  BOOST_TEST(largest == ledger->peak_total());
  BOOST_TEST(found == high.size() - 1);  // steps 0 and 1 are in one entry
}

BOOST_AUTO_TEST_CASE(another_thread_may_read_while_blocks_come_and_go) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  ledger->record_timeline(64);
  std::atomic<bool> done = false;
  std::thread books([&] {
    for (int i = 0; i < 20000; ++i) {
      const auto a = block(*ledger, MemoryClass::weights, 3);
      const auto b = block(*ledger, MemoryClass::workspace, 5);
      ledger->book_transfer("Host", "Host", 1);
    }
    done = true;
  });
  bool sums = true, totals = true;
  while (!done) {
    for (const MemoryMoment& m : ledger->timeline())
      sums = sums && std::accumulate(m.bytes.begin(), m.bytes.end(), std::size_t(0)) == m.total;
    const std::size_t total = ledger->current_total();
    totals = totals && (total == 0 || total == 3 || total == 5 || total == 8);
    ledger->report();
  }
  books.join();
  BOOST_TEST(sums);
  BOOST_TEST(totals);
  BOOST_TEST(ledger->current_total() == 0u);
  BOOST_TEST(ledger->peak_total() == 8u);
  BOOST_TEST(ledger->transfers().at(0).bytes == 20000u);
  BOOST_TEST(ledger->timeline().size() <= 65u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
