// SPDX-License-Identifier: MIT
#include "kformer/parallel/collectives.hpp"

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include "kformer/parallel/tree_order.hpp"
#include "parallel/ranks.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using Types = std::tuple<float, double, bf16, f16, std::int32_t, std::int64_t>;

// Lengths around the boundaries of parts and chunks; a chunk has 64 bytes for each rank.
const std::vector<std::int64_t> lengths = {0, 1, 3, 17, 113, 1025};

CollectivesOptions small_chunks(bool staged) { return {.chunk_bytes = 1, .staged = staged}; }

template <class T>
std::vector<T> values_of(int rank, std::int64_t count) {
  std::mt19937 generator(static_cast<unsigned>(1000 + rank));
  std::uniform_real_distribution<float> number(-100, 100);
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(number(generator)));
  return values;
}

// The tree over ranks, by its definition.
template <class A>
A node(const std::function<A(int)>& term, int first, int width, int size) {
  if (width == 1) return term(first);
  const int middle = first + width / 2;
  const A left = node(term, first, width / 2, size);
  return middle < size ? left + node(term, middle, width / 2, size) : left;
}

template <class T>
std::vector<T> sums_of(int size, std::int64_t count) {
  using A = std::conditional_t<std::is_integral_v<T> || sizeof(T) == 8, T, float>;
  std::vector<std::vector<T>> all;
  for (int r = 0; r < size; ++r) all.push_back(values_of<T>(r, count));
  int width = 1;
  while (width < size) width *= 2;
  std::vector<T> sums;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
    sums.push_back(static_cast<T>(
        node<A>([&](int r) { return static_cast<A>(all[static_cast<std::size_t>(r)][i]); }, 0, width, size)));
  return sums;
}

std::uint64_t sent(const Communicator& communicator, const std::string& operation) {
  std::uint64_t bytes = 0;
  for (const CommunicationCount& c : communicator.log().counts())
    if (c.operation == operation) bytes += c.bytes;
  return bytes;
}

// `f(ranks, length)` for messages in place and staged.
template <class F>
void for_every_length(F f) {
  for (const bool staged : {false, true})
    for (const std::int64_t length : lengths) {
      const auto ledger = Ledger::create();
      Collectives<Exec> ranks(world(), small_chunks(staged), *ledger);
      f(ranks, length);
    }
}

int rank_of(const Collectives<Exec>& ranks) { return ranks.communicator().rank(); }
int size_of_ranks(const Collectives<Exec>& ranks) { return ranks.communicator().size(); }

}  // namespace

BOOST_AUTO_TEST_SUITE(collectives)

BOOST_AUTO_TEST_CASE_TEMPLATE(all_reduce_sums_in_the_tree_of_ranks, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    const Vector<T> x = on_device(values_of<T>(rank, length));
    ranks.all_reduce(Exec(), x, "sums");
    BOOST_TEST(same_bits(on_host(x), sums_of<T>(size, length)), length << " elements");
    // Part by part of every chunk.
    std::uint64_t bytes = 0;
    const auto chunk = static_cast<std::int64_t>(size) * static_cast<std::int64_t>(64 / sizeof(T));
    for (std::int64_t first = 0; size > 1 && first < length; first += chunk) {
      const std::int64_t n = std::min(chunk, length - first), each = (n + size - 1) / size;
      const std::int64_t own = std::clamp<std::int64_t>(n - rank * each, 0, each);
      bytes += static_cast<std::uint64_t>((n - own) + (size - 1) * own) * sizeof(T);
    }
    BOOST_TEST(sent(ranks.communicator(), "all_reduce") == bytes);
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(reduce_scatter_leaves_each_rank_its_part, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    const auto mine = values_of<T>(rank, length * size);
    const Vector<T> x = on_device(mine), y("y", static_cast<std::size_t>(length));
    ranks.reduce_scatter(Exec(), Vector<const T>(x), y);
    const auto all = sums_of<T>(size, length * size);
    BOOST_TEST(same_bits(on_host(y), {all.begin() + rank * length, all.begin() + (rank + 1) * length}));
    BOOST_TEST(same_bits(on_host(x), mine));
    BOOST_TEST(sent(ranks.communicator(), "reduce_scatter") ==
               static_cast<std::uint64_t>((size - 1) * length) * sizeof(T));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_gather_puts_ranks_in_order, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    std::vector<T> expected;
    for (int r = 0; r < size; ++r) {
      const auto part = values_of<T>(r, length);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const Vector<T> x = on_device(values_of<T>(rank, length)), y("y", expected.size());
    ranks.all_gather(Exec(), x, y);
    BOOST_TEST(same_bits(on_host(y), expected));
    BOOST_TEST(sent(ranks.communicator(), "all_gather") ==
               static_cast<std::uint64_t>((size - 1) * length) * sizeof(T));
    // In place.
    const Vector<T> z("z", expected.size());
    const auto begin = static_cast<std::size_t>(rank * length);
    const auto own = Kokkos::subview(z, std::pair(begin, begin + static_cast<std::size_t>(length)));
    Kokkos::deep_copy(own, x);
    ranks.all_gather(Exec(), own, z);
    BOOST_TEST(same_bits(on_host(z), expected));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(all_to_all_transposes, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    std::vector<T> expected;
    for (int r = 0; r < size; ++r) {
      const auto whole = values_of<T>(r, length * size);
      expected.insert(expected.end(), whole.begin() + rank * length, whole.begin() + (rank + 1) * length);
    }
    const Vector<T> x = on_device(values_of<T>(rank, length * size)), y("y", expected.size());
    ranks.all_to_all(Exec(), x, y);
    BOOST_TEST(same_bits(on_host(y), expected));
    BOOST_TEST(sent(ranks.communicator(), "all_to_all") ==
               static_cast<std::uint64_t>((size - 1) * length) * sizeof(T));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(broadcast_reaches_every_rank, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    std::int64_t passed = 0;
    for (int root = 0; root < size; ++root) {
      const Vector<T> x = on_device(values_of<T>(rank, length));
      ranks.broadcast(Exec(), x, root);
      BOOST_TEST(same_bits(on_host(x), values_of<T>(root, length)), "from " << root);
      // The ranks v + 1, v + 2, v + 4, … below the lowest bit of v.
      const int v = (rank - root + size) % size;
      for (int bit = 1; bit < size && !(v & bit); bit *= 2) passed += v + bit < size;
    }
    BOOST_TEST(sent(ranks.communicator(), "broadcast") ==
               static_cast<std::uint64_t>(passed * length) * sizeof(T));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rings_and_pairs_exchange_arrays, T, Types) {
  for_every_length([](Collectives<Exec>& ranks, std::int64_t length) {
    const int rank = rank_of(ranks), size = size_of_ranks(ranks);
    if (size == 1) return;
    const int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    const Vector<T> x = on_device(values_of<T>(rank, length)), y("y", static_cast<std::size_t>(length));
    ranks.shift(Exec(), x, next, y, previous, "ring");
    BOOST_TEST(same_bits(on_host(y), values_of<T>(previous, length)));
    BOOST_TEST(sent(ranks.communicator(), "shift") == static_cast<std::uint64_t>(length) * sizeof(T));
    // The same rank by rank.
    const Vector<T> z("z", static_cast<std::size_t>(length));
    if (rank == 0) ranks.send(Exec(), x, next);
    ranks.receive(Exec(), z, previous);
    if (rank != 0) ranks.send(Exec(), x, next);
    BOOST_TEST(same_bits(on_host(z), values_of<T>(previous, length)));
    BOOST_TEST(sent(ranks.communicator(), "send") == static_cast<std::uint64_t>(length) * sizeof(T));
    BOOST_TEST(sent(ranks.communicator(), "receive") == 0u);
  });
}

BOOST_AUTO_TEST_CASE(a_sum_of_nan_and_infinity_is_one) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {}, *ledger);
  const int last = size_of_ranks(ranks) - 1;
  const bool marked = rank_of(ranks) == last;
  const Vector<float> x = on_device<float>({marked ? std::numeric_limits<float>::quiet_NaN() : 1.f, 2.f,
                                            marked ? std::numeric_limits<float>::infinity() : 1.f});
  ranks.all_reduce(Exec(), x);
  const auto sums = on_host(x);
  BOOST_TEST(std::isnan(sums[0]));
  BOOST_TEST(sums[1] == 2.f * static_cast<float>(last + 1));
  BOOST_TEST(std::isinf(sums[2]));
}

BOOST_AUTO_TEST_CASE(the_size_of_chunks_changes_no_bit) {
  const auto ledger = Ledger::create();
  const auto communicator = world();
  std::vector<std::vector<float>> results;
  for (const std::size_t chunk : {1, 1000, 1 << 20}) {
    Collectives<Exec> ranks(communicator, {.chunk_bytes = chunk}, *ledger);
    const Vector<float> x = on_device(values_of<float>(communicator->rank(), 1025));
    ranks.all_reduce(Exec(), x);
    results.push_back(on_host(x));
  }
  BOOST_TEST(same_bits(results[0], results[1]));
  BOOST_TEST(same_bits(results[0], results[2]));
}

BOOST_AUTO_TEST_CASE(numbers_of_hosts_are_gathered) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {.staged = true}, *ledger);
  const int rank = rank_of(ranks), size = size_of_ranks(ranks);
  std::vector<std::int64_t> ends;  // rank r has r numbers
  for (std::int64_t r = 0; r < size; ++r) ends.push_back(r * (r + 1) / 2);
  std::vector<double> values(static_cast<std::size_t>(ends.back()), -1), expected(values.size());
  std::iota(expected.begin(), expected.end(), 0.5);
  for (std::int64_t i = ends[static_cast<std::size_t>(rank)] - rank; i < ends[static_cast<std::size_t>(rank)];
       ++i)
    values[static_cast<std::size_t>(i)] = static_cast<double>(i) + 0.5;
  ranks.gather_values(Exec(), values, ends, "losses");
  BOOST_TEST(values == expected);
  BOOST_TEST(sent(ranks.communicator(), "gather_values") ==
             static_cast<std::uint64_t>(rank * (size - 1)) * sizeof(double));
}

BOOST_AUTO_TEST_CASE(as_many_numbers_of_each_host_are_gathered) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {.staged = true}, *ledger);
  const std::array own{10.0 * rank_of(ranks), 10.0 * rank_of(ranks) + 0.5};
  std::vector<double> expected;
  for (int r = 0; r < size_of_ranks(ranks); ++r) expected.insert(expected.end(), {10.0 * r, 10.0 * r + 0.5});
  BOOST_TEST(ranks.gather_values(Exec(), own, "losses") == expected);
  BOOST_TEST(sent(ranks.communicator(), "gather_values") == (expected.size() - 2) * sizeof(double));
  BOOST_TEST(ranks.gather_values(Exec(), std::span<const double>()).empty());
}

BOOST_AUTO_TEST_CASE(calls_are_booked_by_region) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {}, *ledger);
  const Vector<float> x("x", 5);
  for (const char* region : {"a", "b", "a"}) ranks.all_reduce(Exec(), x, region);
  ranks.barrier(Exec(), "end");
  const auto counts = ranks.communicator().log().counts();
  BOOST_REQUIRE(counts.size() == 3u);
  BOOST_TEST((counts[0].region == "a" && counts[0].calls == 2u));
  BOOST_TEST((counts[1].region == "b" && counts[1].calls == 1u));
  BOOST_TEST((counts[2].operation == "barrier" && counts[2].region == "end"));
  BOOST_TEST(counts[0].bytes == 2 * counts[1].bytes);
  std::uint64_t rounds = 0;
  while ((1 << rounds) < size_of_ranks(ranks)) ++rounds;
  BOOST_TEST(counts[2].bytes == rounds);
  if (size_of_ranks(ranks) > 1) BOOST_TEST(counts[0].seconds > 0);
}

BOOST_AUTO_TEST_CASE(another_log_has_all_calls) {
  const auto ledger = Ledger::create();
  const auto communicator = world();
  const auto log = std::make_shared<CommunicationLog>();
  Collectives<Exec> ranks(communicator, {.log = log}, *ledger);
  const Vector<float> x("x", 5);
  ranks.all_reduce(Exec(), x);
  const std::array arrays{tensor_ref(x)};
  ranks.reduce_shards(Exec(), arrays, Shards(std::vector<std::int64_t>{5}, 1, communicator->size()));
  ranks.barrier(Exec());
  BOOST_TEST(log->counts().size() == 3u);
  BOOST_TEST(communicator->log().counts().empty());
}

BOOST_AUTO_TEST_CASE(memory_is_booked_once) {
  const auto communicator = world();
  const int size = communicator->size();
  for (const bool staged : {false, true}) {
    const auto forecast = Ledger::create(Ledger::Mode::count), ledger = Ledger::create();
    const CollectivesOptions options{.chunk_bytes = 1000, .staged = staged};
    const Collectives<Exec> imagined(std::make_shared<LoneCommunicator>(communicator->rank(), size), options,
                                     *forecast);
    Collectives<Exec> ranks(communicator, options, *ledger);
    const Vector<double> x("x", 1025);
    ranks.all_reduce(Exec(), x);
    const std::size_t slot = (static_cast<std::size_t>((1000 + size - 1) / size) + 63) / 64 * 64;
    BOOST_TEST(ranks.receive_bytes() == static_cast<std::size_t>(size - 1) * slot);
    const bool stages = size > 1 && (staged || ledger->peak_total() > ranks.receive_bytes());
    const std::size_t expected =
        ranks.receive_bytes() + (stages ? 2 * static_cast<std::size_t>(size) * slot : 0);
    BOOST_TEST(ledger->peak(MemoryClass::communication) == expected);
    BOOST_TEST(ledger->peak_total() == expected);
    if (staged) BOOST_TEST(forecast->peak_total() == expected);
  }
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {}, *ledger);
  const std::string size = std::to_string(size_of_ranks(ranks)), self = std::to_string(rank_of(ranks));
  const std::string last = std::to_string(size_of_ranks(ranks) - 1);
  const Vector<float> x("x", 3), y("y", 7 * static_cast<std::size_t>(size_of_ranks(ranks)));
  check_error<DimensionMismatch>([&] { ranks.all_gather(Exec(), x, y); },
                                 "kformer::Collectives::all_gather: extents do not match: y has " +
                                     std::to_string(7 * size_of_ranks(ranks)) + " elements and x 3; expected " +
                                     size + " times as many, one part for each rank");
  check_error<NotSupported>([&] { ranks.broadcast(Exec(), x, -1); },
                            "kformer::Collectives::broadcast: 'world' has no rank -1, only 0 to " + last);
  check_error<NotSupported>(
      [&] { ranks.send(Exec(), x, rank_of(ranks)); },
      "kformer::Collectives::send: rank " + self + " of 'world' is the caller; name another rank");
  check_error<NotSupported>([&] { Collectives<Exec>(nullptr, {}, *ledger); },
                            "kformer::Collectives: there is no communicator; one rank has a LoneCommunicator");
  check_error<NotSupported>([&] { Collectives<Exec>(world(), {.chunk_bytes = 0}, *ledger); },
                            "kformer::Collectives: chunk_bytes must be positive, got 0");
  const Kokkos::View<float**, Kokkos::LayoutRight, Exec::memory_space> matrix("matrix", 3, 4);
  check_error<DimensionMismatch>(
      [&] { ranks.all_reduce(Exec(), Kokkos::subview(matrix, Kokkos::ALL(), std::pair(0, 2))); },
      "kformer::Collectives::all_reduce: the array [3,2] has gaps; expected one without");
  check_error<NotSupported>(
      [&] {
        Collectives<Exec> imagined(std::make_shared<LoneCommunicator>(1, 2), {}, *ledger);
        imagined.all_reduce(Exec(), x);
      },
      "kformer::LoneCommunicator: all_reduce: rank 1 of 2 is imagined, to forecast memory, and has nobody to "
      "talk "
      "to");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
