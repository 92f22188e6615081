// SPDX-License-Identifier: MIT
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// \file
/// Shared by all programs, with and without decks.

namespace kformer::drivers {

/// Exit codes of all drivers.
enum ExitCode {
  exit_ok = 0,
  exit_failure = 1,        ///< something went wrong while running
  exit_usage = 2,          ///< the command line is wrong
  exit_deck = 3,           ///< the deck is invalid
  exit_io = 4,             ///< a file could not be read or written
  exit_check = 5,          ///< a result is out of tolerance
  exit_out_of_memory = 6,  ///< memory ran out, and the deck says abort or nothing could go on
  exit_nothing = 7,        ///< no case ran, so that no result or tensor was written
  exit_stopped = 75        ///< stopped by a signal or the time limit; results so far are on disk
};

/// The message of `exit_nothing` for a run without a result.
inline constexpr const char* no_case_ran = "no case ran; the table says why";

/// Writes a sentence to standard error and ends the process, with no destructor or handler called. A signal handler may call it.
[[noreturn]] void end_at_once(std::string_view text, int code);

/// What to say of an error if it means that memory ran out: `OutOfMemory`, std::bad_alloc, or what Kokkos throws
/// when an allocation fails. Nothing for other errors.
std::optional<std::string> out_of_memory_text(const std::exception& error);

/// The arguments of a program.
struct ProgramArguments {
  std::vector<std::string> all;     ///< the whole command line
  std::vector<std::string> kokkos;  ///< for Kokkos::initialize
  std::vector<std::string> own;  ///< the others, without the program; the last one first, as CLI11 takes them
};

/// Separates the arguments of Kokkos from a command line.
ProgramArguments split_arguments(int argc, char** argv);

/// The text of --help on the arguments of Kokkos.
extern const char* const kokkos_help;

/// Calls `run` and converts exceptions to a message and an exit code.
int guarded(const std::function<int()>& run);

/// The `main` of a program without decks.
/// \param parse takes the command line apart; nothing if it has been answered, with its exit code
/// \param run   what the program does; both are guarded
template <class Command>
int program_main(int argc, char** argv, std::optional<Command> (*parse)(int, char**, int&),
                 int (*run)(const Command&)) {
  return guarded([&] {
    int exit_code = exit_ok;
    const auto command = parse(argc, argv, exit_code);
    return command ? run(*command) : exit_code;
  });
}

}  // namespace kformer::drivers
