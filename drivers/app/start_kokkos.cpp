// SPDX-License-Identifier: MIT
#include "app/start_kokkos.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "app/say.hpp"
#include "kformer/core/device.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/kernel_list.hpp"

namespace kformer::drivers {

namespace {

// Kokkos says the same in four lines, in every run.
void note_unbound_threads([[maybe_unused]] std::vector<std::string>& arguments) {
#ifdef KOKKOS_ENABLE_OPENMP
  if (std::getenv("OMP_PROC_BIND") != nullptr || std::getenv("KOKKOS_DISABLE_WARNINGS") != nullptr) return;
  for (const std::string& argument : arguments)
    if (argument.starts_with("--kokkos-disable-warnings")) return;
  arguments.emplace_back("--kokkos-disable-warnings");
  say(stderr,
      "note: threads may move between cores; times vary less with OMP_PROC_BIND=spread OMP_PLACES=threads\n");
#endif
}

// Kokkos ends the program at other words, and has room for so many threads of a host.
void require_threads(const std::string& source, const std::string& text) {
  constexpr int most_threads = 512;
  int threads = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (fault != std::errc() || end != text.data() + text.size() || threads < 1 || threads > most_threads)
    throw NotSupported(fmt::format("{} = '{}' must be an integer in [1, {}], the threads that Kokkos can have",
                                   source, text, most_threads));
}

// Of the arguments and of the environment, which Kokkos and OpenMP read in any case. OMP_NUM_THREADS may be a list, of which
// the first counts.
void require_threads(const std::vector<std::string>& arguments) {
  constexpr std::string_view option = "--kokkos-num-threads=";
  for (const std::string& argument : arguments)
    if (argument.starts_with(option)) require_threads("--kokkos-num-threads", argument.substr(option.size()));
  for (const char* name : {"KOKKOS_NUM_THREADS", "OMP_NUM_THREADS"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      require_threads(name, std::string(value).substr(0, std::string_view(value).find(',')));
}

}  // namespace

void require_device() {
  if (const std::string why = missing_device(); !why.empty()) throw NotSupported(why);
}

// Kokkos moves the null, too, when it takes an argument away.
std::vector<char*> argument_pointers(std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::unique_ptr<Kokkos::ScopeGuard> start_kokkos(const std::string& program, std::vector<std::string> arguments,
                                                 std::int64_t threads) {
  Impl::check_forced_kernels();
  arguments.insert(arguments.begin(), program);
  note_unbound_threads(arguments);
  if (threads > 0) arguments.push_back("--kokkos-num-threads=" + std::to_string(threads));
  require_threads(arguments);
  std::vector<char*> argv = argument_pointers(arguments);
  int argc = static_cast<int>(arguments.size());
  return std::make_unique<Kokkos::ScopeGuard>(argc, argv.data());
}

}  // namespace kformer::drivers
