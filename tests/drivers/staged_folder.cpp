// SPDX-License-Identifier: MIT
#include "output/staged_folder.hpp"

#include <boost/test/unit_test.hpp>

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "io/error_text.hpp"
#include "io/scratch_directory.hpp"
#include "kformer/core/error.hpp"

namespace {

namespace fs = std::filesystem;
using namespace kformer;
using namespace kformer::drivers;
using namespace kformer::Testing;

struct Folder {
  ScratchDirectory directory;
  fs::path path = directory / "out";

  StagedFolder folder(const fs::path& named) const { return {"output.x", named, "program"}; }
  StagedFolder claimed() const {
    StagedFolder made = folder(path);
    made.claim();
    return made;
  }
  bool is_empty() const { return fs::is_empty(directory.path()); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(staged_folder, Folder)

BOOST_AUTO_TEST_CASE(files_are_there_when_all_are) {
  const StagedFolder out = claimed();
  out.fill([&] {
    put_contents(out.staging() / "a", "1");
    BOOST_TEST(!fs::exists(path / "a"));
    fs::rename(out.staging() / "a", path / "a");
    put_contents(out.staging() / "b", "2");
  });
  BOOST_TEST(contents_of(path / "a") == "1");
  BOOST_TEST(!fs::exists(out.staging()));
}

// Whatever failed: here it is no error of the file system.
BOOST_AUTO_TEST_CASE(a_failure_leaves_what_was_there) {
  const auto fail = [&] {
    const StagedFolder out = claimed();
    out.fill([&] {
      put_contents(out.staging() / "a", "1");
      throw std::runtime_error("no");
    });
  };
  BOOST_CHECK_THROW(fail(), std::runtime_error);
  BOOST_TEST(is_empty());
  fs::create_directory(path);
  BOOST_CHECK_THROW(fail(), std::runtime_error);
  BOOST_TEST(fs::is_empty(path));
  put_contents(path / "mine", "2");
  BOOST_CHECK_THROW(fail(), std::runtime_error);
  fs::remove(path / "mine");
  BOOST_TEST(fs::is_empty(path));
}

BOOST_AUTO_TEST_CASE(a_trial_leaves_nothing) {
  const StagedFolder out = claimed();
  out.make();
  BOOST_TEST(fs::is_empty(out.staging()));
  out.drop();
  BOOST_TEST(!fs::exists(path));
}

BOOST_AUTO_TEST_CASE(what_the_file_system_says_is_an_error_of_the_folder) {
  put_contents(path, "a file");
  const StagedFolder out = folder(path / "in");
  const std::string text = file_error([&] { out.with_errors([&] { fs::create_directories(out.path()); }); });
  BOOST_TEST(text == "output.x '" + out.path().string() + "' cannot be written: Not a directory");
}

BOOST_AUTO_TEST_CASE(a_folder_with_files_is_not_used) {
  const std::string name = "output.x '" + fs::weakly_canonical(path).string() + "' ";
  const auto fault = [&](bool replace) {
    return file_error([&] { folder(path).require_usable(replace, "do this"); });
  };
  BOOST_TEST(fault(false) == "no error");
  fs::create_directories(path / ".program.part");
  BOOST_TEST(fault(false) == "no error");  // of a run that was killed
  put_contents(path / "mine", "");
  BOOST_TEST(fault(false) == name + "exists and is not empty; do this");
  BOOST_TEST(fault(true) == "no error");
  fs::remove_all(path);
  put_contents(path, "a file");
  BOOST_TEST(fault(true) == name + "is not a folder");
}

BOOST_AUTO_TEST_CASE(a_folder_has_one_name_and_one_run) {
  fs::create_directory(path);
  fs::create_directory_symlink(path, directory / "link");
  for (const fs::path& other : {path / "", path / ".", path / ".." / "out", directory / "link"})
    BOOST_TEST(folder(other).path() == folder(path).path());
  std::optional<StagedFolder> first = claimed();
  StagedFolder moved = std::move(*first);
  first.reset();
  BOOST_TEST(file_error([&] { claimed(); }).find("is being written by another run") != std::string::npos);
  {
    const StagedFolder gone = std::move(moved);
  }
  BOOST_TEST(file_error([&] { claimed(); }) == "no error");
}

BOOST_AUTO_TEST_SUITE_END()
