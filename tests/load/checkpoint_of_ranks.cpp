// SPDX-License-Identifier: MIT
#include <limits>

#include "io/scratch_directory.hpp"
#include "kformer/parallel/shards.hpp"
#include "load/checkpoint_arrays.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

// The part of each array that a rank has, cut anywhere.
std::vector<NamedArray> part_of_rank(const std::vector<NamedArray>& arrays, int rank, int ranks) {
  std::vector<NamedArray> parts;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::int64_t size = arrays[i].array.size();
    const ArrayRange range{i, size * rank / ranks, size * (rank + 1) / ranks};
    parts.push_back({arrays[i].name, part_of(arrays[i].array, range), range.begin});
  }
  return parts;
}

// The writers of all ranks, without messages: `agree` only counts.
struct RankWriters {
  RankWriters(const std::filesystem::path& folder, const Arrays& arrays, int ranks, std::int64_t keep,
              bool background) {
    for (int rank = 0; rank < ranks; ++rank) {
      const CheckpointOptions options{.folder = folder,
                                      .keep = keep,
                                      .background = background,
                                      .rank = rank,
                                      .ranks = ranks,
                                      .agree = [this] { ++agreed; }};
      writers.push_back(std::make_unique<CheckpointWriter<Exec>>(
          options, part_of_rank(arrays.named(), rank, ranks), *ledger));
    }
  }
  // The last rank first, so that rank 0 finds the files of the others.
  void snapshot(std::int64_t step) {
    for (auto writer = writers.rbegin(); writer != writers.rend(); ++writer)
      (*writer)->snapshot(Exec(), step, writer + 1 == writers.rend() ? "text" : "");
  }
  void finish() {
    for (auto writer = writers.rbegin(); writer != writers.rend(); ++writer) (*writer)->finish();
  }

  std::shared_ptr<Ledger> ledger = Ledger::create();
  std::vector<std::unique_ptr<CheckpointWriter<Exec>>> writers;
  int agreed = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(checkpoint_of_ranks)

BOOST_AUTO_TEST_CASE(ranks_write_one_checkpoint_and_any_number_continues) {
  for (const int ranks : {2, 3, 5})
    for (const bool background : {false, true}) {
      const ScratchDirectory scratch;
      const Arrays written(7);
      RankWriters all(scratch.path(), written, ranks, 2, background);
      all.snapshot(40);
      all.finish();
      BOOST_TEST(all.agreed == ranks);
      const TrainingCheckpoint checkpoint = newest_good_checkpoint(scratch.path()).value();
      BOOST_TEST(checkpoint.step() == 40);
      BOOST_TEST(checkpoint.metadata() == "text");
      for (const int readers : {1, 2, 4}) {
        const Arrays read(8);
        for (int rank = 0; rank < readers; ++rank) {
          const auto parts = readers == 1 ? read.named() : part_of_rank(read.named(), rank, readers);
          checkpoint.restore(Exec(), std::span<const NamedArray>(parts), *all.ledger);
        }
        BOOST_TEST((read.bits() == written.bits()), ranks << " ranks wrote, " << readers << " read");
      }
    }
}

// Until all ranks have written a checkpoint the one before it stays.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_ranks_counts_when_all_files_are_there) {
  const ScratchDirectory scratch;
  const Arrays arrays(1);
  RankWriters all(scratch.path(), arrays, 2, 1, true);
  const std::string second = "step-00000002.safetensors", second_of_1 = "step-00000002.rank-1-of-2.safetensors";
  all.snapshot(1);
  all.writers[0]->snapshot(Exec(), 2, "text");
  all.writers[0]->finish();  // deletes what is older, as if rank 1 had agreed
  BOOST_TEST(names_in(scratch.path()) == (std::vector{second}), boost::test_tools::per_element());
  std::vector<std::string> reasons;
  BOOST_TEST(newest_step(scratch.path(), &reasons) == -1);
  const std::string missing = (scratch.path() / second_of_1).string();
  BOOST_TEST(reasons.back() == "'" + (scratch.path() / second).string() + "' is incomplete: '" + missing +
                                   "' of rank 1 is not there");
  all.writers[1]->snapshot(Exec(), 2, "");
  all.writers[1]->finish();
  BOOST_TEST(newest_step(scratch.path()) == 2);
  BOOST_TEST(names_in(scratch.path()) == (std::vector{second_of_1, second}), boost::test_tools::per_element());
  all.snapshot(3);
  all.finish();
  BOOST_TEST(newest_step(scratch.path()) == 3);
  BOOST_TEST(names_in(scratch.path()).size() == 2);
}

// As if a run was killed while it deleted a checkpoint.
BOOST_AUTO_TEST_CASE(a_checkpoint_of_which_a_part_was_deleted_is_deleted_later) {
  const ScratchDirectory scratch;
  const Arrays arrays(1);
  const auto path = [&](int step, const std::string& part = ".rank-1-of-2") {
    return scratch.path() / ("step-0000000" + std::to_string(step) + part + ".safetensors");
  };
  RankWriters all(scratch.path(), arrays, 2, 0, false);
  all.snapshot(1);
  all.snapshot(2);
  // What cannot be deleted stops it where a kill might.
  std::filesystem::remove(path(2));
  std::filesystem::create_directories(path(2) / "in the way");
  BOOST_CHECK_THROW(remove_training_checkpoint(path(2, "")), FileError);
  std::filesystem::remove_all(path(2));
  BOOST_TEST(training_checkpoints_in(scratch.path()).size() == 2u);
  std::vector<std::string> reasons;
  BOOST_TEST(newest_step(scratch.path(), &reasons) == 1);
  BOOST_TEST(reasons.size() == 1u);
  RankWriters one_stays(scratch.path(), arrays, 2, 1, false);
  one_stays.snapshot(3);
  BOOST_TEST(names_in(scratch.path()) == (std::vector<std::string>{path(3).filename(), path(3, "").filename()}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(damaged_or_foreign_files_of_ranks_are_found) {
  const ScratchDirectory scratch;
  const Arrays arrays(1), others(2);
  RankWriters two(scratch.path(), arrays, 2, 0, false);
  two.snapshot(1);
  two.snapshot(2);
  const auto path = [&](int step) {
    return scratch.path() / ("step-0000000" + std::to_string(step) + ".rank-1-of-2.safetensors");
  };
  const std::string main = (scratch.path() / "step-00000002.safetensors").string();
  std::filesystem::copy_file(path(1), path(2), std::filesystem::copy_options::overwrite_existing);
  std::vector<std::string> reasons;
  BOOST_TEST(newest_step(scratch.path(), &reasons) == 1);
  BOOST_TEST(reasons.back() == "'" + path(2).string() + "' does not belong to '" + main +
                                   "': its step or its number of ranks differs");
  std::filesystem::resize_file(path(1), std::filesystem::file_size(path(1)) - 1);
  BOOST_TEST(newest_step(scratch.path()) == -1);
  // What is cut can only be restored as the array that it was.
  two.snapshot(3);
  const TrainingCheckpoint checkpoint = newest_good_checkpoint(scratch.path()).value();
  auto named = others.named();
  const TensorRef f32 = named[0].array;
  named[0].array = part_of(f32, {0, 0, f32.size() - 1});
  BOOST_CHECK_THROW(checkpoint.restore(Exec(), std::span<const NamedArray>(named), *two.ledger), FileError);
  named[0].begin = 2;
  BOOST_CHECK_THROW(checkpoint.restore(Exec(), std::span<const NamedArray>(named), *two.ledger), FileError);
  named[0].begin = 1;
  checkpoint.restore(Exec(), std::span<const NamedArray>(named), *two.ledger);
}

// With checksums that are right.
BOOST_AUTO_TEST_CASE(parts_that_make_no_array_are_found) {
  const TestTensor<Exec, float> floats({4}, Rows::packed);
  const TestTensor<Exec, double> doubles({4}, Rows::packed);
  const auto ledger = Ledger::create();
  const auto fault = [&](const NamedArray& first, const NamedArray& second) {
    const ScratchDirectory scratch;
    for (const int rank : {1, 0})
      CheckpointWriter<Exec>({.folder = scratch.path(), .background = false, .rank = rank, .ranks = 2},
                             {rank == 0 ? first : second}, *ledger)
          .snapshot(Exec(), 1, "");
    std::vector<std::string> reasons;
    newest_step(scratch.path(), &reasons);
    return reasons.empty() ? "no fault" : reasons.back().substr(reasons.back().find("is damaged"));
  };
  const NamedArray begin{"w", floats.ref(), 0};
  BOOST_TEST(fault(begin, {"w", floats.ref(), 4}) == "no fault");
  BOOST_TEST(fault(begin, {"w", doubles.ref(), 4}) ==
             "is damaged: the parts of 'w' are of the types F32 and F64");
  BOOST_TEST(fault(begin, {"w", floats.ref(), 5}) == "is damaged: 'w' has no element 4 in any of its files");
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  BOOST_TEST(fault(begin, {"w", floats.ref(), most}) ==
             "is damaged: 'w#9223372036854775807' names no part of an array");
  BOOST_TEST(fault(begin, {"w", floats.ref(), 4, {0, 1, most}}) ==
             "is damaged: 'w#4:0-1/9223372036854775807' names no part of an array");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
