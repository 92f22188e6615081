// SPDX-License-Identifier: MIT
// What every program does with errors and signals that the tests of single drivers cannot bring about.
#include "app/program.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "app/start_kokkos.hpp"
#include "io/scratch_directory.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/safetensors.hpp"
#include "sweep/measurement.hpp"

namespace kformer::Testing {
namespace {

/// How a program ends that runs `run`, and what it prints to standard error.
struct Ended {
  int status = 0;
  std::string said;

  Ended(const ScratchDirectory& folder, const std::function<int()>& run) {
    const auto path = folder / "stderr";
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
      if (std::freopen(path.c_str(), "w", stderr) == nullptr) ::_exit(99);
      const int code = drivers::guarded(run);
      std::fflush(stderr);
      ::_exit(code);
    }
    ::waitpid(child, &status, 0);
    said = contents_of(path);
  }

  bool exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(program)

BOOST_AUTO_TEST_CASE(the_arguments_of_kokkos_end_with_a_null) {
  std::vector<std::string> arguments{"program", "--kokkos-num-threads=1"};
  const std::vector<char*> pointers = drivers::argument_pointers(arguments);
  BOOST_TEST_REQUIRE(pointers.size() == 3u);
  BOOST_TEST(
      (pointers[0] == arguments[0].data() && pointers[1] == arguments[1].data() && pointers[2] == nullptr));
}

BOOST_AUTO_TEST_CASE(a_file_that_becomes_shorter_while_it_is_read_is_a_file_error) {
  const ScratchDirectory folder;
  const auto path = folder / "weights.safetensors";
  const std::vector<double> values(100'000, 1.0);
  SafetensorsWriter writer;
  writer.add("a", "F64", {values.size()}, values.data());
  writer.write(path);
  const Ended ended(folder, [&] {
    const SafetensorsFile file = SafetensorsFile::open(path);
    std::filesystem::resize_file(path, 0);
    return file.read_f64("a").empty() ? 0 : 1;
  });
  BOOST_TEST(ended.exited_with(drivers::exit_io));
  BOOST_TEST(ended.said ==
             "error: a mapped file shrank while it was read, or its disk failed; do not replace weights during "
             "a run\n");
}

BOOST_AUTO_TEST_CASE(errors_of_the_file_system_are_file_errors) {
  const ScratchDirectory folder;
  std::filesystem::create_symlink(folder / "loop", folder / "loop");
  const Ended ended(folder, [&] { return std::filesystem::is_directory(folder / "loop") ? 0 : 1; });
  BOOST_TEST(ended.exited_with(drivers::exit_io));
  BOOST_TEST(ended.said ==
             "error: cannot use '" + (folder / "loop").string() + "': Too many levels of symbolic links\n");
}

BOOST_AUTO_TEST_CASE(decks_and_files_have_exit_codes_of_their_own) {
  const ScratchDirectory folder;
  const Ended place(folder, []() -> int { throw DeckError("a.toml:1:1: error: x"); });
  BOOST_TEST(place.exited_with(drivers::exit_deck));
  BOOST_TEST(place.said == "a.toml:1:1: error: x\n");
  const Ended deck(folder, []() -> int { throw DeckError("x"); });
  BOOST_TEST(deck.exited_with(drivers::exit_deck));
  BOOST_TEST(deck.said == "error: x\n");
  const Ended file(folder, []() -> int { throw FileError("x"); });
  BOOST_TEST(file.exited_with(drivers::exit_io));
  BOOST_TEST(file.said == "error: x\n");
}

const std::string what_to_do =
    "; run smaller cases, free memory, or raise the limit on it (ulimit -v, or that of the container or the "
    "batch system)";

BOOST_AUTO_TEST_CASE(errors_give_no_orders_to_a_terminal) {
  const ScratchDirectory folder;
  const Ended ended(folder, []() -> int { throw FileError("a\x1b[31mb\tc\n\x7f\xc2\x9b\xc3\xa4\r"); });
  BOOST_TEST(ended.exited_with(drivers::exit_io));
  BOOST_TEST(ended.said == "error: a\\x1b[31mb\tc\n\\x7f\\x9b\xc3\xa4\\x0d\n", ended.said);
}

BOOST_AUTO_TEST_CASE(an_allocation_that_fails_is_out_of_memory) {
  const ScratchDirectory folder;
  const Ended standard(folder, []() -> int { throw std::bad_alloc(); });
  BOOST_TEST(standard.exited_with(drivers::exit_out_of_memory));
  BOOST_TEST(standard.said == "error: memory ran out (std::bad_alloc)" + what_to_do + "\n");
  const Ended kokkos(folder, []() -> int {
    throw std::runtime_error("Kokkos ERROR: Host memory space failed to allocate 3 MiB (label=\"x\").");
  });
  BOOST_TEST(kokkos.exited_with(drivers::exit_out_of_memory));
  BOOST_TEST(kokkos.said ==
             "error: memory ran out (Kokkos ERROR: Host memory space failed to allocate 3 MiB "
             "(label=\"x\").)" +
                 what_to_do + "\n");
  const Ended other(folder, []() -> int { throw std::runtime_error("x"); });
  BOOST_TEST(other.exited_with(drivers::exit_failure));
  BOOST_TEST(other.said == "error: x\n");
}

BOOST_AUTO_TEST_CASE(a_case_whose_allocation_fails_is_recorded_or_ends_the_run) {
  const auto fails = [] { throw std::bad_alloc(); };
  drivers::Measurement measurement;
  drivers::record_failure(OnOutOfMemory::record, measurement, fails);
  BOOST_TEST((measurement.status == drivers::CaseStatus::out_of_memory));
  BOOST_TEST(measurement.message == "memory ran out (std::bad_alloc)" + what_to_do);
  BOOST_CHECK_THROW(drivers::record_failure(OnOutOfMemory::abort, measurement, fails), OutOfMemory);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
