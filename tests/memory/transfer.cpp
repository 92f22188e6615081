// SPDX-License-Identifier: MIT
#include "kformer/memory/transfer.hpp"

#include <cstdint>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "kformer/memory/arena.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Space = Exec::memory_space;
using Staging = HostStagingSpace<Space>;
constexpr bool host_reaches = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible;

static_assert(Kokkos::SpaceAccessibility<Kokkos::HostSpace, Staging>::accessible);
static_assert(host_reaches == std::is_same_v<Staging, Kokkos::HostSpace>);

template <class MemorySpace>
using Matrix = Kokkos::View<std::int32_t**, Kokkos::LayoutRight, MemorySpace>;

constexpr int rows = 300, cols = 701;  // large enough for Kokkos to copy in parallel

Matrix<Staging> counted_up(std::int32_t first) {
  Matrix<Staging> matrix("counted up", rows, cols);
  std::iota(matrix.data(), matrix.data() + matrix.span(), first);
  return matrix;
}

bool is_counted_up(const Matrix<Staging>& matrix, std::int32_t first) {
  const Matrix<Staging> wanted = counted_up(first);
  return std::equal(matrix.data(), matrix.data() + matrix.span(), wanted.data());
}

const TransferCount* find(const std::vector<TransferCount>& counts, const char* from, const char* to) {
  for (const TransferCount& count : counts)
    if (count.from == from && count.to == to) return &count;
  return nullptr;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(transfer)

BOOST_AUTO_TEST_CASE(a_view_goes_to_host_memory_and_back) {
  const Exec exec;
  const auto ledger = Ledger::create();
  const Matrix<Staging> host = counted_up(5), back("back", rows, cols);
  const Matrix<Space> device("device", rows, cols);
  kformer::transfer(exec, *ledger, device, host);
  kformer::transfer(exec, *ledger, back,
                    Kokkos::View<const std::int32_t**, Kokkos::LayoutRight, Space>(device));
  exec.fence("kformer::test");
  BOOST_TEST(is_counted_up(back, 5));
  constexpr std::uint64_t bytes = sizeof(std::int32_t) * rows * cols;
  const auto counts = ledger->transfers();
  if constexpr (host_reaches) {
    BOOST_TEST(counts.size() == 1u);
    BOOST_TEST(counts.at(0).transfers == 2u);
    BOOST_TEST(counts.at(0).bytes == 2 * bytes);
  } else {
    BOOST_TEST(counts.size() == 2u);
    for (const TransferCount* count :
         {find(counts, Staging::name(), Space::name()), find(counts, Space::name(), Staging::name())}) {
      BOOST_REQUIRE(count != nullptr);
      BOOST_TEST(count->transfers == 1u);
      BOOST_TEST(count->bytes == bytes);
    }
  }
  BOOST_TEST(ledger->current_total() == 0u);
}

BOOST_AUTO_TEST_CASE(copies_follow_the_work_of_their_instance) {
  const std::vector<Exec> instances{Exec(), Kokkos::Experimental::partition_space(Exec(), 1)[0]};
  const auto ledger = Ledger::create();
  std::vector<Matrix<Space>> devices;
  std::vector<Matrix<Staging>> hosts;
  for (int i = 0; i < 2; ++i) {
    devices.emplace_back("device", rows, cols);
    hosts.emplace_back("host", rows, cols);
  }
  for (int round = 0; round < 10; ++round)
    for (std::size_t i = 0; i < 2; ++i) {
      const Matrix<Space>& device = devices[i];
      const std::int32_t first = round + static_cast<std::int32_t>(i);
      Kokkos::parallel_for(
          "kformer::test::count_up", Kokkos::RangePolicy<Exec>(instances[i], 0, rows * cols),
          KOKKOS_LAMBDA(int k) { device.data()[k] = first + k; });
      kformer::transfer(instances[i], *ledger, hosts[i], device);
    }
  for (std::size_t i = 0; i < 2; ++i) {
    instances[i].fence("kformer::test");
    BOOST_TEST(is_counted_up(hosts[i], 9 + static_cast<std::int32_t>(i)));
  }
  BOOST_TEST(ledger->transfers().at(0).transfers == 20u);
}

#if defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP)
BOOST_AUTO_TEST_CASE(two_host_spaces_share_their_memory) {
  const auto ledger = Ledger::create();
  const Matrix<Kokkos::HostSpace> a("a", rows, cols), b("b", rows, cols), c("c", rows, cols);
  std::iota(a.data(), a.data() + a.span(), 7);
  const Kokkos::OpenMP parallel;
  kformer::transfer(parallel, *ledger, b, a);
  parallel.fence("kformer::test");
  kformer::transfer(Kokkos::Serial(), *ledger, c, b);
  BOOST_TEST(std::equal(a.data(), a.data() + a.span(), c.data()));
  const auto counts = ledger->transfers();
  BOOST_TEST(counts.size() == 1u);
  BOOST_TEST(counts.at(0).from == "Host");
  BOOST_TEST(counts.at(0).to == "Host");
  BOOST_TEST(counts.at(0).transfers == 2u);
}
#endif

BOOST_AUTO_TEST_CASE(a_transfer_neither_fences_nor_allocates) {
  const Exec exec;
  const auto ledger = Ledger::create();
  const Matrix<Staging> host = counted_up(0);
  const Matrix<Space> device("device", rows, cols);
  const ToolsRecorder recorder;
  kformer::transfer(exec, *ledger, device, host);
  BOOST_TEST(recorder.deep_copies().size() == 1u);
  BOOST_TEST(recorder.fences().empty());
  BOOST_TEST(recorder.allocations().empty());
}

BOOST_AUTO_TEST_CASE(bytes_of_blocks_can_be_copied) {
  const Exec exec;
  const auto ledger = Ledger::create();
  const auto host = ledger->allocate<Staging>(MemoryClass::activations, "host", 100);
  const auto device = ledger->allocate<Space>(MemoryClass::activations, "device", 60);
  for (int i = 0; i < 100; ++i) host.data()[i] = std::byte(i);
  kformer::transfer<Space, Staging>(exec, *ledger, device.data(), host.data(), 50);
  kformer::transfer<Staging, Space>(exec, *ledger, host.data() + 50, device.data(), 50);
  exec.fence("kformer::test");
  for (int i = 0; i < 100; ++i) BOOST_TEST(int(host.data()[i]) == i % 50);
}

BOOST_AUTO_TEST_CASE(a_counting_ledger_counts_transfers_without_memory) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  Kokkos::View<float*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> device(nullptr, 1000);
  Kokkos::View<float*, Staging, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(nullptr, 1000);
  const ToolsRecorder recorder;
  kformer::transfer(Exec(), *ledger, device, host);
  BOOST_TEST(ledger->transfers().at(0).bytes == 4000u);
  BOOST_TEST(recorder.deep_copies().empty());
}

BOOST_AUTO_TEST_CASE(views_of_other_shapes_are_refused) {
  const auto ledger = Ledger::create();
  const Matrix<Space> device("device", 4, 6);
  const Kokkos::View<std::int32_t**, Kokkos::LayoutStride, Space> part =
      Kokkos::subview(device, Kokkos::ALL, std::pair(0, 3));
  const auto refused = [&](const auto& to, const auto& from, const std::string& extents) {
    check_error<DimensionMismatch>([&] { kformer::transfer(Exec(), *ledger, to, from); },
                                   "kformer::transfer: extents, strides or gaps do not match: " + extents +
                                       "; expected equal extents and strides without gaps");
  };
  refused(device, Matrix<Staging>("host", 6, 4), "to[4,6] from[6,4]");
  refused(device, Kokkos::View<std::int32_t**, Kokkos::LayoutLeft, Staging>("host", 4, 6), "to[4,6] from[4,6]");
  refused(part, Matrix<Staging>("host", 4, 3), "to[4,3] from[4,3]");
  BOOST_TEST(ledger->transfers().empty());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
