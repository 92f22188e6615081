// SPDX-License-Identifier: MIT
#include "kformer/memory/ledger.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "kformer/memory/arena.hpp"
#include "kformer/memory/booked_scratch.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Space = Exec::memory_space;
using Block = MemoryBlock<Space>;

Block take(Ledger& ledger, MemoryClass memory_class, std::size_t bytes) {
  return ledger.allocate<Space>(memory_class, "block", bytes);
}

// For work on one instance.
Block take(const Exec& exec, Ledger& ledger, MemoryClass memory_class, std::size_t bytes) {
  return ledger.allocate(exec, memory_class, "block", bytes);
}

static_assert(!std::is_copy_constructible_v<Block> && !std::is_copy_assignable_v<Block>);
static_assert(std::is_nothrow_move_constructible_v<Block> && std::is_nothrow_move_assignable_v<Block>);

}  // namespace

BOOST_AUTO_TEST_SUITE(ledger)

BOOST_AUTO_TEST_CASE(classes_have_names) {
  const char* names[] = {"weights",  "gradients", "optimizer",     "activations",
                         "kv_cache", "workspace", "communication", "io"};
  static_assert(std::size(names) == memory_classes);
  for (int c = 0; c < memory_classes; ++c) BOOST_TEST(to_string(static_cast<MemoryClass>(c)) == names[c]);
}

BOOST_AUTO_TEST_CASE(bytes_are_booked_by_class_and_in_all) {
  const auto ledger = Ledger::create();
  const Block weights = take(*ledger, MemoryClass::weights, 100);
  {
    const Block workspace = take(*ledger, MemoryClass::workspace, 50),
                more = take(*ledger, MemoryClass::weights, 7);
    BOOST_TEST(ledger->current(MemoryClass::weights) == 107u);
    BOOST_TEST(ledger->current(MemoryClass::workspace) == 50u);
    BOOST_TEST(ledger->current_total() == 157u);
    BOOST_TEST(workspace.bytes() == 50u);
    BOOST_TEST(workspace.data() != nullptr);
    BOOST_TEST(workspace.at<float>(8) == static_cast<void*>(workspace.data() + 8));
  }
  BOOST_TEST(ledger->current(MemoryClass::weights) == 100u);
  BOOST_TEST(ledger->current(MemoryClass::workspace) == 0u);
  BOOST_TEST(ledger->current(MemoryClass::io) == 0u);
  BOOST_TEST(ledger->current_total() == 100u);
  BOOST_TEST(ledger->peak(MemoryClass::weights) == 107u);
  BOOST_TEST(ledger->peak(MemoryClass::workspace) == 50u);
  BOOST_TEST(ledger->peak_total() == 157u);
}

BOOST_AUTO_TEST_CASE(the_total_peak_is_that_of_one_moment) {
  const auto ledger = Ledger::create();
  take(*ledger, MemoryClass::gradients, 30);
  take(*ledger, MemoryClass::kv_cache, 40);
  BOOST_TEST(ledger->peak(MemoryClass::gradients) == 30u);
  BOOST_TEST(ledger->peak(MemoryClass::kv_cache) == 40u);
  BOOST_TEST(ledger->peak_total() == 40u);
}

BOOST_AUTO_TEST_CASE(peaks_start_again_from_what_is_held) {
  const auto ledger = Ledger::create();
  const Block kept = take(*ledger, MemoryClass::optimizer, 10);
  take(*ledger, MemoryClass::optimizer, 90);
  BOOST_TEST(ledger->peak_total() == 100u);
  ledger->reset_peaks();
  BOOST_TEST(ledger->peak(MemoryClass::optimizer) == 10u);
  BOOST_TEST(ledger->peak_total() == 10u);
  take(*ledger, MemoryClass::io, 5);
  BOOST_TEST(ledger->peak_total() == 15u);
}

BOOST_AUTO_TEST_CASE(moving_a_block_moves_its_booking) {
  const auto ledger = Ledger::create();
  Block a = take(*ledger, MemoryClass::activations, 10);
  std::byte* const data = a.data();
  Block b = std::move(a);
  BOOST_TEST(b.data() == data);
  BOOST_TEST(ledger->current_total() == 10u);
  Block c = take(*ledger, MemoryClass::workspace, 20);
  c = std::move(b);
  BOOST_TEST(c.data() == data);
  BOOST_TEST(c.bytes() == 10u);
  BOOST_TEST(ledger->current(MemoryClass::activations) == 10u);
  BOOST_TEST(ledger->current(MemoryClass::workspace) == 0u);
  Block& itself = c;
  c = std::move(itself);
  BOOST_TEST(c.data() == data);
  c = Block();
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(a_block_may_outlive_the_hands_that_hold_the_ledger) {
  auto ledger = Ledger::create();
  const std::weak_ptr<Ledger> watch = ledger;
  {
    const Block block = take(*ledger, MemoryClass::weights, 10);
    ledger.reset();
    BOOST_TEST(watch.lock()->current_total() == 10u);
  }
  BOOST_TEST(watch.expired());
}

BOOST_AUTO_TEST_CASE(a_counting_ledger_books_without_memory) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  const ToolsRecorder recorder;
  const std::size_t huge = std::size_t(1) << 60;
  {
    const Block block = take(*ledger, MemoryClass::weights, huge);
    BOOST_TEST(block.data() == nullptr);
    BOOST_TEST(block.at<float>(64) == nullptr);
    BOOST_TEST(block.bytes() == huge);
    BOOST_TEST(ledger->current_total() == huge);
  }
  BOOST_TEST(ledger->counts_only());
  BOOST_TEST(ledger->current_total() == 0u);
  BOOST_TEST(ledger->peak(MemoryClass::weights) == huge);
  {
    const Block block = take(Exec(), *ledger, MemoryClass::io, huge);
    BOOST_TEST(block.data() == nullptr);
    BOOST_TEST(ledger->current_total() == huge);
  }
  BOOST_TEST(ledger->current_total() == 0u);
  BOOST_TEST(recorder.allocations().size() == 0u);
}

BOOST_AUTO_TEST_CASE(out_of_memory_prints_the_ledger) {
  const auto ledger = Ledger::create();
  const Block held = take(*ledger, MemoryClass::weights, 1536);
  const std::size_t huge = std::size_t(1) << 60;
  const std::string text =
      std::string(
          "kformer::Ledger: 1048576.00 TiB for 'too much' (activations) could not be allocated "
          "in memory space ") +
      Space::name() +
      "; allocated so far:\nclass          current       peak\nweights         1.50 "
      "KiB   1.50 KiB\ntotal           1.50 KiB   1.50 KiB\n";
  const ToolsRecorder recorder;
  check_error<OutOfMemory>(
      [&] { static_cast<void>(ledger->allocate<Space>(MemoryClass::activations, "too much", huge)); }, text);
  check_error<OutOfMemory>(
      [&] { static_cast<void>(ledger->allocate(Exec(), MemoryClass::activations, "too much", huge)); }, text);
  BOOST_TEST(ledger->current_total() == 1536u);
  BOOST_TEST(ledger->peak(MemoryClass::activations) == 0u);
  BOOST_TEST(recorder.current_bytes() == 0u);
}

BOOST_AUTO_TEST_CASE(the_report_lists_the_classes_in_use) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  BOOST_TEST(ledger->report() == "class          current       peak\ntotal                0 B        0 B\n");
  take(*ledger, MemoryClass::workspace, std::size_t(3) << 30);
  const Block block = take(*ledger, MemoryClass::weights, 100);
  BOOST_TEST(ledger->report() ==
             "class          current       peak\n"
             "weights            100 B      100 B\n"
             "workspace            0 B   3.00 GiB\n"
             "total              100 B   3.00 GiB\n");
}

BOOST_AUTO_TEST_CASE(bytes_in_words) {
  BOOST_TEST(format_bytes(0) == "0 B");
  BOOST_TEST(format_bytes(1023) == "1023 B");
  BOOST_TEST(format_bytes(1024) == "1.00 KiB");
  BOOST_TEST(format_bytes(1536) == "1.50 KiB");
  BOOST_TEST(format_bytes(std::size_t(5) << 20) == "5.00 MiB");
  BOOST_TEST(format_bytes(std::size_t(1) << 50) == "1024.00 TiB");
}

BOOST_AUTO_TEST_CASE(layouts_place_arrays_at_multiples_of_64_bytes) {
  MemoryLayout layout;
  BOOST_TEST(layout.bytes() == 0u);
  BOOST_TEST(layout.reserve<float>(3) == 0u);
  BOOST_TEST(layout.reserve<double>(8) == 64u);
  BOOST_TEST(layout.reserve<std::uint16_t>(33) == 128u);
  BOOST_TEST(layout.reserve<float>(0) == 256u);
  BOOST_TEST(layout.next() == 256u);
  BOOST_TEST(layout.bytes() == 256u);
}

BOOST_AUTO_TEST_CASE(a_rewound_layout_needs_the_larger_of_both) {
  MemoryLayout layout;
  layout.reserve<std::byte>(64);
  const std::size_t shared = layout.next();
  layout.reserve<std::byte>(1000);
  layout.rewind(shared);
  BOOST_TEST(layout.reserve<std::byte>(64) == 64u);
  BOOST_TEST(layout.next() == 128u);
  BOOST_TEST(layout.bytes() == 64u + 1024u);
  layout.reserve<std::byte>(2000);
  BOOST_TEST(layout.bytes() == 128u + 2048u);
}

// Kokkos keeps a header before each allocation; its callbacks report the requested bytes,
// so the witness and the ledger agree to the byte.
BOOST_AUTO_TEST_CASE(kokkos_tools_see_the_bytes_that_are_booked) {
  const Exec exec;
  const auto ledger = Ledger::create();
  const auto see = [&](auto take_block) {
    ledger->reset_peaks();
    const ToolsRecorder witness;
    std::vector<Block> blocks;
    for (const std::size_t bytes : {1u, 63u, 64u, 65u, 0u, 4096u, 1000003u}) {
      blocks.push_back(take_block(MemoryClass::activations, bytes));
      BOOST_TEST(witness.current_bytes() == ledger->current_total());
    }
    blocks.erase(blocks.begin() + 3);
    BOOST_TEST(witness.current_bytes() == ledger->current_total());
    blocks[0] = take_block(MemoryClass::workspace, 500000);
    BOOST_TEST(witness.current_bytes() == ledger->current_total());
    blocks.clear();
    BOOST_TEST(witness.current_bytes() == 0u);
    BOOST_TEST(witness.peak_bytes() == ledger->peak_total());
    BOOST_TEST(witness.allocations().size() == 7u);  // none for the empty block
    for (const auto& allocation : witness.allocations()) {
      BOOST_TEST(allocation.label == "kformer::block");
      BOOST_TEST(allocation.space == Space::name());
    }
    BOOST_TEST(std::ranges::is_permutation(witness.allocations(), witness.deallocations()));
  };
  see([&](MemoryClass memory_class, std::size_t bytes) { return take(*ledger, memory_class, bytes); });
  see([&](MemoryClass memory_class, std::size_t bytes) { return take(exec, *ledger, memory_class, bytes); });
}

BOOST_AUTO_TEST_CASE(blocks_of_an_instance_are_booked_and_move_like_others) {
  const Exec exec;
  const auto ledger = Ledger::create();
  Block a = take(exec, *ledger, MemoryClass::activations, 10);
  std::byte* const data = a.data();
  BOOST_TEST(data != nullptr);
  BOOST_TEST(ledger->current(MemoryClass::activations) == 10u);
  Block b = take(*ledger, MemoryClass::workspace, 20);
  b = std::move(a);
  BOOST_TEST(b.data() == data);
  BOOST_TEST(a.data() == nullptr);  // NOLINT(bugprone-use-after-move): what a moved Block holds is promised
  BOOST_TEST(ledger->current_total() == 10u);
  b = {};
  BOOST_TEST(ledger->current_total() == 0u);
  BOOST_TEST(ledger->peak_total() == 30u);
}

// Each block is released while its kernels may still run, and the next one may get its memory.
BOOST_AUTO_TEST_CASE(work_that_was_launched_before_may_use_a_block_that_has_died) {
  constexpr int blocks = 20, size = 100000;
  const std::vector<Exec> instances{Exec(), Kokkos::Experimental::partition_space(Exec(), 1)[0]};
  for (const Exec& exec : instances) {
    const auto ledger = Ledger::create();
    Kokkos::View<std::int64_t[blocks], Space> sums("sums");
    for (int n = 0; n < blocks; ++n) {
      const Block block = take(exec, *ledger, MemoryClass::workspace, size * sizeof(std::int32_t));
      std::int32_t* const values = block.at<std::int32_t>(0);
      Kokkos::parallel_for(
          "kformer::test::fill", Kokkos::RangePolicy<Exec>(exec, 0, size),
          KOKKOS_LAMBDA(int i) { values[i] = i % 7 + n; });
      Kokkos::parallel_reduce(
          "kformer::test::sum", Kokkos::RangePolicy<Exec>(exec, 0, size),
          KOKKOS_LAMBDA(int i, std::int64_t& sum) { sum += values[i]; }, Kokkos::subview(sums, n));
    }
    exec.fence("kformer::test");
    BOOST_TEST(ledger->peak_total() == size * sizeof(std::int32_t));
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), sums);
    std::int64_t first = 0;
    for (int i = 0; i < size; ++i) first += i % 7;
    for (int n = 0; n < blocks; ++n) BOOST_TEST(host(n) == first + std::int64_t(n) * size);
  }
}

// A pool knows the order of an instance's work; for other memory the instance is waited for.
BOOST_AUTO_TEST_CASE(blocks_of_an_instance_are_not_waited_for_where_there_is_a_pool) {
  const Exec exec;
  const auto ledger = Ledger::create();
  const bool pool = Pool<Space>::reserved_bytes().has_value();
  const ToolsRecorder recorder;
  take(exec, *ledger, MemoryClass::workspace, 64);
  const auto waits = std::ranges::count(recorder.fences(), "kformer::Pool::give_back");
  if (pool)
    BOOST_TEST(recorder.fences().empty());
  else
    BOOST_TEST(waits == 1);
}

BOOST_AUTO_TEST_CASE(a_pool_keeps_memory_until_it_is_trimmed) {
  constexpr std::size_t bytes = std::size_t(64) << 20;
  const auto ledger = Ledger::create();
  Pool<Space>::trim();
  const auto before = Pool<Space>::reserved_bytes();
  const auto held = [&] { return Pool<Space>::reserved_bytes().value() - before.value(); };
  Block block = take(Exec(), *ledger, MemoryClass::workspace, bytes);
  BOOST_TEST(Pool<Space>::reserved_bytes().has_value() == before.has_value());
  if (!before) return;
  BOOST_TEST(held() >= bytes);
  block = {};
  Exec().fence("kformer::test");
  BOOST_TEST(held() >= bytes);
  Pool<Space>::trim();
  BOOST_TEST(held() == 0u);
}

BOOST_AUTO_TEST_CASE(sizes_that_leave_64_bits_are_out_of_memory) {
  constexpr std::int64_t large = std::int64_t(1) << 32;
  check_error<OutOfMemory>(
      [] { checked_product({large, 3, large}); },
      "kformer::Ledger: the product 4294967296 x 3 x 4294967296 does not fit in 64 bits; make the "
      "extents smaller");
  BOOST_TEST(checked_product({large, 0, large, large}) == 0);
  BOOST_TEST(array_bytes<float>({3, 5}) == 60u);
  MemoryLayout layout;
  layout.reserve<std::byte>(std::numeric_limits<std::int64_t>::max() - 128);
  check_error<OutOfMemory>(
      [&] { layout.reserve<float>(64); },
      "kformer::Ledger: the sum of 9223372036854775680 and 256 bytes does not fit in 64 bits; make the "
      "extents smaller");
  const auto forecast = Ledger::create(Ledger::Mode::count);
  const Block half = take(*forecast, MemoryClass::weights, std::size_t(1) << 63);
  check_error<OutOfMemory>(
      [&] { take(*forecast, MemoryClass::weights, std::size_t(1) << 63); },
      "kformer::Ledger: the sum of 9223372036854775808 and 9223372036854775808 bytes does not fit in 64 "
      "bits; make the extents smaller");
  BOOST_TEST(forecast->current_total() == std::size_t(1) << 63);
}

BOOST_AUTO_TEST_CASE(an_arena_places_views_in_one_block) {
  const auto ledger = Ledger::create();
  Kokkos::View<float**, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> a;
  Kokkos::View<double*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> b, c, d;
  Arena<Space> arena;
  arena.add(a, 3, 5);
  arena.overlap([&] { arena.add(b, 7); }, [&] { arena.add(c, 9); });
  arena.add(d, 1);
  BOOST_TEST(arena.bytes() == 64u + 128u + 64u);
  const Block block = arena.allocate(*ledger, MemoryClass::workspace, "arena");
  BOOST_TEST(ledger->current(MemoryClass::workspace) == arena.bytes());
  const auto offset = [&](const void* data) { return static_cast<const std::byte*>(data) - block.data(); };
  BOOST_TEST(offset(a.data()) == 0);
  BOOST_TEST(a.stride(0) == 5u);
  BOOST_TEST(a.extent(1) == 5u);
  BOOST_TEST(offset(b.data()) == 64);
  BOOST_TEST(offset(c.data()) == 64);
  BOOST_TEST(c.extent(0) == 9u);
  BOOST_TEST(offset(d.data()) == 64 + 128);
  constexpr std::int64_t large = std::int64_t(1) << 32;
  BOOST_CHECK_THROW(arena.add(a, large, large), OutOfMemory);
}

// Kokkos allocates what the ledger says, and a little for itself.
BOOST_AUTO_TEST_CASE(reserved_scratch_is_booked_while_its_block_lives) {
  constexpr std::size_t bytes = std::size_t(1) << 20;
  const Exec exec = Kokkos::Experimental::partition_space(Exec{}, 1)[0];
  const auto ledger = Ledger::create(), forecast = Ledger::create(Ledger::Mode::count),
             full = Ledger::create(Ledger::Mode::allocate, bytes - 1);
  std::size_t booked = 0;
  if constexpr (Impl::is_host_space<Exec>) booked = bytes * static_cast<std::size_t>(exec.concurrency());
  {
    const ToolsRecorder recorder;
    const auto counted = reserve_scratch(exec, *forecast, bytes);
    BOOST_TEST(forecast->current(MemoryClass::workspace) == booked);
    if (booked > 0) BOOST_CHECK_THROW((void)reserve_scratch(exec, *full, bytes), OutOfMemory);
    BOOST_TEST(recorder.allocations().empty());
    const auto block = reserve_scratch(exec, *ledger, bytes);
    BOOST_TEST(ledger->current(MemoryClass::workspace) == booked);
    std::size_t allocated = 0;
    for (const auto& allocation : recorder.allocations()) allocated += allocation.bytes;
    BOOST_TEST(allocated >= booked);
    BOOST_TEST(allocated <= booked + booked / 4);
  }
  BOOST_TEST(ledger->current(MemoryClass::workspace) == 0u);
  BOOST_TEST(ledger->peak(MemoryClass::workspace) == booked);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
