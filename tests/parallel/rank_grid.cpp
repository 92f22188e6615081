// SPDX-License-Identifier: MIT
#include "kformer/parallel/rank_grid.hpp"

#include <cstdlib>
#include <numeric>
#include <vector>

#include "parallel/ranks.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(rank_grid)

BOOST_AUTO_TEST_CASE(every_rank_has_a_place_and_every_place_a_rank) {
  const RankGrid grid(std::make_shared<LoneCommunicator>(17, 36),
                      {.data = 3, .context = 2, .tensor = 2, .pipeline = 3});
  // 17 = ((1 · 3 + 1) · 2 + 0) · 2 + 1
  BOOST_TEST((grid.place() == GridIndex{1, 0, 1, 1}));
  for (int rank = 0; rank < 36; ++rank) BOOST_TEST(grid.rank_at(grid.place_of(rank)) == rank);
  BOOST_TEST(grid.rank_at({2, 1, 1, 2}) == 35);
  BOOST_TEST(grid.along(GridAxis::data)->size() == 3);
  BOOST_TEST(grid.along(GridAxis::data)->rank() == 1);
  BOOST_TEST(grid.along(GridAxis::tensor)->rank() == 1);
  BOOST_TEST(grid.along(GridAxis::context)->name() == "context");
}

// For every grid of the ranks, the sum along each axis.
BOOST_AUTO_TEST_CASE(lines_of_the_grid_talk_among_themselves) {
  const auto ranks = world();
  const int size = ranks->size();
  for (int data = 1; data <= size; ++data)
    for (int context = 1; data * context <= size; ++context)
      for (int tensor = 1; data * context * tensor <= size; ++tensor) {
        if (size % (data * context * tensor) != 0) continue;
        const RankGrid grid(ranks, {data, context, tensor, size / (data * context * tensor)});
        for (const GridAxis axis : {GridAxis::data, GridAxis::context, GridAxis::tensor, GridAxis::pipeline}) {
          const auto ledger = Ledger::create();
          Collectives<Exec> line(grid.along(axis), {}, *ledger);
          const Vector<std::int32_t> x = on_device<std::int32_t>({ranks->rank()});
          line.all_reduce(Exec(), x);
          std::int32_t expected = 0;
          GridIndex place = grid.place();
          for (place.along(axis) = 0; place.along(axis) < grid.shape().along(axis); ++place.along(axis))
            expected += grid.rank_at(place);
          BOOST_TEST(on_host(x)[0] == expected);
        }
      }
}

// srun sets none of them for several nodes without --ntasks-per-node, and tests start all ranks on one machine.
BOOST_AUTO_TEST_CASE(ranks_of_a_machine_are_counted_without_the_variables_of_launchers) {
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"})
    ::setenv(variable, "1", 1);
  std::vector<int> all(static_cast<std::size_t>(world()->size()));
  std::iota(all.begin(), all.end(), 0);
  BOOST_TEST(MpiSession::ranks_on_this_machine() == all, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ranks = std::make_shared<MpiCommunicator>(MPI_COMM_WORLD);
  for (int i = 0; i < 32767; ++i) ranks->subset(std::vector{ranks->rank()}, "alone");
  check_error<NotSupported>(
      [&] { ranks->subset(std::vector{ranks->rank()}, "alone"); },
      "kformer::MpiCommunicator::subset: 'alone' would be one too many: there are tags for 32767 "
      "subsets; make them once");
  const auto six = std::make_shared<LoneCommunicator>(0, 6);
  check_error<NotSupported>([&] { RankGrid(six, {.data = 2, .tensor = 2}); },
                            "kformer::RankGrid: data 2, context 1, tensor 2, pipeline 1 are 4 ranks, but "
                            "'world' has 6; their product must "
                            "be the number of ranks");
  check_error<NotSupported>(
      [&] { RankGrid(six, {.data = 6, .context = 0}); },
      "kformer::RankGrid: every axis needs at least one rank, got data 6, context 0, tensor 1, "
      "pipeline 1");
  const RankGrid grid(six, {.data = 3, .tensor = 2});
  check_error<NotSupported>([&] { grid.place_of(6); },
                            "kformer::RankGrid::place_of: there is no rank 6, only 0 to 5");
  check_error<NotSupported>(
      [&] { grid.rank_at({3, 0, 0, 0}); },
      "kformer::RankGrid::rank_at: there is no place data 3, context 0, tensor 0, pipeline 0 in "
      "a grid of data 3, context 1, tensor 2, pipeline 1");
  check_error<NotSupported>(
      [&] { six->subset(std::vector{0, 7}, "few"); },
      "kformer::Communicator::subset: 'few' of ranks 0, 7: 'world' has no rank 7, only 0 to 5");
  check_error<NotSupported>([&] { six->subset(std::vector{0, 2, 2}, "few"); },
                            "kformer::Communicator::subset: 'few' of ranks 0, 2, 2: rank 2 is named twice");
  check_error<NotSupported>(
      [&] { six->subset(std::vector{1, 2}, "few"); },
      "kformer::Communicator::subset: 'few' of ranks 1, 2: rank 0 made the call and is not among them");
  check_error<NotSupported>([] { LoneCommunicator(2, 2); },
                            "kformer::LoneCommunicator: there can be no rank 2 of 2");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
