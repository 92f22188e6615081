// SPDX-License-Identifier: MIT
#include "io/atomic_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/error.hpp"
#include "scratch_directory.hpp"

namespace {

/// What the library asked of the system, and how the system is to answer.
struct System {
  bool watched = false;
  std::size_t longest_write = SIZE_MAX, room = SIZE_MAX;
  int sync_error = 0;
  std::vector<std::string> calls = {};
};

System& system_calls() {
  static System system;
  return system;
}

void note(const char* call) {
  if (system_calls().watched) system_calls().calls.emplace_back(call);
}

}  // namespace

// The linker prefers these to those of the C library.
extern "C" ssize_t write(int file, const void* bytes, std::size_t count) {
  note("write");
  System& system = system_calls();
  if (!system.watched) return syscall(SYS_write, file, bytes, count);
  if (system.room == 0) {
    errno = ENOSPC;
    return -1;
  }
  const auto written = syscall(SYS_write, file, bytes, std::min({count, system.longest_write, system.room}));
  if (written > 0) system.room -= static_cast<std::size_t>(written);
  return written;
}

extern "C" int fsync(int file) {
  struct stat status{};
  ::fstat(file, &status);
  note(S_ISDIR(status.st_mode) ? "sync folder" : "sync file");
  if (system_calls().watched && system_calls().sync_error != 0) {
    errno = system_calls().sync_error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fsync, file));
}

extern "C" int rename(const char* from, const char* to) noexcept {
  note("rename");
  return ::renameat(AT_FDCWD, from, AT_FDCWD, to);
}

BOOST_AUTO_TEST_SUITE(atomic_file)

namespace {

using kformer::Testing::contents_of;
using kformer::Testing::put_contents;
using kformer::Testing::ScratchDirectory;
using Calls = std::vector<std::string>;

/// Watches the system while it lives.
class Watched {
 public:
  Watched() { system_calls() = {.watched = true}; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched() { system_calls() = {}; }
};

void replace(const std::filesystem::path& path, const std::string& contents) {
  const std::array pieces{std::as_bytes(std::span(contents))};
  kformer::Impl::replace_file(path, pieces);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_file_takes_its_name_when_it_is_on_the_disk) {
  const ScratchDirectory scratch;
  Calls calls;
  {
    const Watched watched;
    replace(scratch / "file", "new");
    calls = system_calls().calls;
  }
  BOOST_TEST(calls == (Calls{"write", "sync file", "rename", "sync folder"}), boost::test_tools::per_element());
  BOOST_TEST(contents_of(scratch / "file") == "new");
}

BOOST_AUTO_TEST_CASE(a_system_that_writes_in_parts_writes_all) {
  const ScratchDirectory scratch;
  {
    const Watched watched;
    system_calls().longest_write = 3;
    replace(scratch / "file", "ten letters");
  }
  BOOST_TEST(contents_of(scratch / "file") == "ten letters");
}

BOOST_AUTO_TEST_CASE(a_disk_that_fails_or_is_full_leaves_what_was_there) {
  for (const auto& [system, expected] :
       {std::pair{System{.watched = true, .sync_error = EIO}, "Input/output error"},
        {System{.watched = true, .room = 2}, "No space left on device"}}) {
    const ScratchDirectory scratch;
    put_contents(scratch / "file", "old");
    std::string message;
    {
      const Watched watched;
      system_calls() = system;
      try {
        replace(scratch / "file", "new");
      } catch (const kformer::FileError& error) {
        message = error.what();
      }
    }
    BOOST_TEST(message.find(std::string(expected) + "; the existing file is unchanged") != message.npos,
               message);
    BOOST_TEST(contents_of(scratch / "file") == "old");
    BOOST_TEST(std::distance(std::filesystem::directory_iterator(scratch.path()), {}) == 1);
  }
}

BOOST_AUTO_TEST_SUITE_END()
