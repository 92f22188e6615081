// SPDX-License-Identifier: MIT
// The inputs in tests/fuzz/corpus, as they are and with small changes. Those named bad_* must be refused, all others read.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/targets.hpp"
#include "random_bytes.hpp"
#include "scratch_directory.hpp"

namespace kformer::Testing {

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> inputs_of(const FuzzTarget& target) {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(KFORMER_SOURCE_DIR) / "tests/fuzz/corpus" / target.name))
    files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

void read_all(std::span<const FuzzTarget> targets) {
  constexpr int changes = 300;
  const std::vector<std::string> pieces =
      json_pieces({std::string(8, '\xFF'), std::string(8, '\0'), "[[", "=", "\n"});
  for (const FuzzTarget& target : targets) {
    const auto files = inputs_of(target);
    BOOST_TEST(!files.empty(), "no input for " << target.name);
    for (const fs::path& file : files) {
      const std::string bytes = contents_of(file);
      const bool bad = file.filename().string().starts_with("bad_");
      BOOST_TEST(is_read(target, bytes) == !bad, file.string());
      Random random(20260101);
      for (int change = 0; change < changes; ++change) is_read(target, mutated(random, bytes, pieces));
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(replay)

BOOST_AUTO_TEST_CASE(checkpoints) { read_all(checkpoint_targets()); }
BOOST_AUTO_TEST_CASE(texts) { read_all(text_targets()); }
BOOST_AUTO_TEST_CASE(training_data) { read_all(data_targets()); }
BOOST_AUTO_TEST_CASE(decks) { read_all(deck_targets()); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
