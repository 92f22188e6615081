// SPDX-License-Identifier: MIT
#include "app/program.hpp"

#include <fmt/core.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <system_error>

#include "app/address_space.hpp"
#include "app/say.hpp"
#include "app/terminal.hpp"
#include "kformer/core/error.hpp"

namespace kformer::drivers {

#ifdef __GLIBC__
// What precedes the constructors of libraries.
__attribute__((section(".preinit_array"),
               used)) static void (*before_libraries)(int, char**, char**) = start_in_address_space;
#endif

const char* const kokkos_help =
    "Arguments that start with --kokkos- go to Kokkos: --kokkos-num-threads=N, --kokkos-device-id=N,\n"
    "--kokkos-map-device-id-by=mpi_rank, --kokkos-print-configuration, --kokkos-tools-libs=LIB.\n";

ProgramArguments split_arguments(int argc, char** argv) {
  ProgramArguments arguments;
  arguments.all.assign(argv, argv + argc);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    (argument.starts_with("--kokkos-") ? arguments.kokkos : arguments.own).push_back(argument);
  }
  std::reverse(arguments.own.begin(), arguments.own.end());
  return arguments;
}

void end_at_once(std::string_view text, int code) {
  const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
  static_cast<void>(ignored);
  ::_exit(code);
}

namespace {

// A file that is mapped can become shorter while it is read; a signal handler may do no more than this.
void end_for_lost_file(int) {
  end_at_once(
      "error: a mapped file shrank while it was read, or its disk failed; do not replace weights during a "
      "run\n",
      exit_io);
}

// A file that is opened while one of them is closed would get what is printed there.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0) {
      const int ignored = ::open("/dev/null", O_RDWR);  // the lowest that is closed
      static_cast<void>(ignored);
    }
}

// What was printed is a result too: if it cannot be written, the run did not succeed.
int with_output(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  const std::string reason = errno == 0 ? "an earlier write failed" : std::generic_category().message(errno);
  say(stderr, "error: cannot write to the standard output: {}\n", reason);
  return code == exit_ok ? exit_io : code;
}

}  // namespace

std::optional<std::string> out_of_memory_text(const std::exception& error) {
  std::string text = error.what();
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return text;
  // Kokkos throws a std::runtime_error.
  const bool allocation = dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
                          text.find("failed to allocate") != std::string::npos;
  if (!allocation) return {};
  return "memory ran out (" + text +
         "); run smaller cases, free memory, or raise the limit on it (ulimit -v, or that of the container or "
         "the batch system)";
}

int guarded(const std::function<int()>& run) {
  open_standard_streams();
  std::signal(SIGBUS, end_for_lost_file);
  std::signal(SIGXFSZ, SIG_IGN);  // writing then fails, and says why
  const auto fail = [](const std::exception& error, int code) {
    std::fflush(stdout);  // Both may go to one file.
    // A fault of a deck begins with its place.
    const bool said =
        code == exit_deck && std::string_view(error.what()).find("error: ") != std::string_view::npos;
    say(stderr, "{}{}\n", said ? "" : "error: ", printable(error.what()));
    return code;
  };
  try {
    return with_output(run());
  } catch (const DeckError& error) {
    return fail(error, exit_deck);
  } catch (const FileError& error) {
    return fail(error, exit_io);
  } catch (const std::filesystem::filesystem_error& error) {
    std::fflush(stdout);
    say(stderr, "error: cannot use '{}': {}\n", printable(error.path1().string()), error.code().message());
    return exit_io;
  } catch (const std::exception& error) {
    if (const auto text = out_of_memory_text(error)) return fail(OutOfMemory(*text), exit_out_of_memory);
    return fail(error, std::ferror(stdout) != 0 ? exit_io : exit_failure);
  }
}

}  // namespace kformer::drivers
