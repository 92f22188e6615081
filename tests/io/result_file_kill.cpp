// SPDX-License-Identifier: MIT
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

#include "hdf5_reader.hpp"
#include "kformer/io/result_file.hpp"
#include "scratch_directory.hpp"

namespace {

using kformer::ColumnType;
using kformer::ResultFile;
using kformer::Testing::Hdf5Reader;
using kformer::Testing::ScratchDirectory;

/// Appends cases until it is killed, and prints the number of finished cases after each checkpoint.
[[noreturn]] void write_cases_forever(const std::filesystem::path& path, int announcements) {
  ResultFile file(path);
  auto& cases = file.table("cases", "case", "number of the case");
  cases.dimension("repeat", "timed repetition");
  cases.column({.name = "impl", .type = ColumnType::text, .long_name = "implementation"});
  cases.column({.name = "seq_len", .type = ColumnType::i64, .long_name = "sequence length"});
  cases.column({.name = "time", .units = "s", .long_name = "time of one call", .along = "repeat"});
  for (int finished = 0;;) {
    cases.append({{"impl", "flash"}, {"seq_len", finished}, {"time", std::vector<double>(20, finished)}});
    file.checkpoint();
    ++finished;
    if (::write(announcements, &finished, sizeof(finished)) != sizeof(finished)) ::_exit(1);
  }
}

/// Starts the writer, kills it `delay` after its start or after its first case, and returns the number of cases it last
/// announced.
int run_and_kill(const std::filesystem::path& path, std::chrono::microseconds delay, bool after_first_case) {
  int pipe_ends[2];
  BOOST_REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t writer = ::fork();
  BOOST_REQUIRE(writer >= 0);
  if (writer == 0) {
    ::close(pipe_ends[0]);
    try {
      write_cases_forever(path, pipe_ends[1]);
    } catch (...) {
      ::_exit(1);
    }
  }
  ::close(pipe_ends[1]);
  int announced = 0;
  const auto read_announcement = [&] {
    return ::read(pipe_ends[0], &announced, sizeof(announced)) == sizeof(announced);
  };
  if (after_first_case) BOOST_TEST(read_announcement());
  std::this_thread::sleep_for(delay);
  ::kill(writer, SIGKILL);
  int status = 0;
  ::waitpid(writer, &status, 0);
  BOOST_TEST((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "the writer ended before it was killed");
  while (read_announcement()) {
  }
  ::close(pipe_ends[0]);
  return announced;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(result_file_kill)

BOOST_AUTO_TEST_CASE(a_killed_writer_leaves_all_finished_cases_readable) {
  std::mt19937 random(20260101);
  std::uniform_int_distribution<int> microseconds(0, 100'000);
  int rounds_with_cases = 0;
  for (int round = 0; round < 100; ++round) {
    const ScratchDirectory scratch;
    const auto part = scratch / "run.h5.part";
    const std::chrono::microseconds delay(microseconds(random));
    // A busy machine may write no case in the first tenth of a second.
    const int announced = run_and_kill(scratch / "run.h5", delay, round % 2 == 1);
    BOOST_TEST_CONTEXT("round " << round << ", killed after " << delay.count() << " us, announced "
                                << announced) {
      if (!std::filesystem::exists(part)) {
        BOOST_TEST(announced == 0);
        continue;
      }
      const Hdf5Reader reader(part);
      BOOST_TEST(reader.number_attribute("/", "complete") == 0);
      if (!reader.has("/cases")) {
        BOOST_TEST(announced == 0);
        continue;
      }
      ++rounds_with_cases;
      const hsize_t rows = reader.extents("/cases/case").at(0);
      BOOST_TEST(rows >= static_cast<hsize_t>(announced));
      BOOST_TEST(reader.names("/cases").size() == 5);
      for (const char* column : {"impl", "seq_len", "time"}) {
        BOOST_TEST(reader.extents(std::string("/cases/") + column).at(0) == rows, column);
      }
      const auto seq_len = reader.numbers("/cases/seq_len");
      const auto time = reader.numbers("/cases/time");
      for (std::size_t row = 0; row < rows; ++row) {
        BOOST_TEST(seq_len[row] == static_cast<double>(row));
        BOOST_TEST(time[row * 20 + 19] == static_cast<double>(row));
      }
    }
  }
  BOOST_TEST(rounds_with_cases >= 50);
}

BOOST_AUTO_TEST_SUITE_END()
