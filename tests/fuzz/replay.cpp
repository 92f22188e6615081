// SPDX-License-Identifier: MIT
// The inputs in tests/fuzz/corpus, as they are and with small changes. Those named bad_* must be refused, all others read.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/held_bytes.hpp"
#include "fuzz/targets.hpp"
#include "kformer/core/error.hpp"
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

// Puts a number of 1, 2, 4 or 8 bytes in the place of others: lengths and offsets are such numbers.
std::string overwritten(Random& random, std::string bytes) {
  static constexpr std::array<std::uint64_t, 8> numbers{0,          1,          0xFF,       0xFFFF,
                                                        0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, ~std::uint64_t{0}};
  if (bytes.empty()) return bytes;
  const std::uint64_t number = below(random, 2) == 0 ? one_of(random, numbers) : random();
  const std::size_t place = below(random, bytes.size());
  const std::size_t size = std::min(std::size_t{1} << below(random, 4), bytes.size() - place);
  std::memcpy(bytes.data() + place, &number, size);
  return bytes;
}

std::string changed(Random& random, std::string bytes, const std::vector<std::string>& pieces) {
  for (std::size_t left = 1 + below(random, 4); left > 0; --left)
    bytes = below(random, 2) == 0 ? overwritten(random, std::move(bytes))
                                  : mutated(random, std::move(bytes), pieces);
  return bytes;
}

int changes_of_target() {
  const char* given = std::getenv("KFORMER_FUZZ_CHANGES");
  return given == nullptr ? 400 : std::atoi(given);
}

// A compiler may leave out memory of which it sees every use.
void use(const void* memory) {
  static const void* volatile used = nullptr;
  used = memory;
}

void read_all(std::span<const FuzzTarget> targets, int changes = changes_of_target()) {
  const std::vector<std::string> pieces =
      json_pieces({std::string(8, '\xFF'), std::string(8, '\0'), "[[", "=", "\n"});
  for (const FuzzTarget& target : targets) {
    const auto files = inputs_of(target);
    std::size_t most = 0;  // bytes that one of them held
    const auto read = [&](std::string_view bytes) {
      const HeldBytes held;
      const bool is = is_read(target, bytes);
      most = std::max(most, held.most());
      return is;
    };
    BOOST_TEST(!files.empty(), "no input for " << target.name);
    for (const fs::path& file : files) {
      const std::string bytes = contents_of(file);
      const bool bad = file.filename().string().starts_with("bad_");
      BOOST_TEST(read(bytes) == !bad, file.string());
      Random random(20260101);
      for (int left = changes / static_cast<int>(files.size()); left > 0; --left)
        read(changed(random, bytes, pieces));
    }
    BOOST_TEST_MESSAGE(target.name << ": " << files.size() << " inputs, about " << changes
                                   << " changes, at most " << most << " bytes held");
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(replay)

// The folders name what scripts/fuzz runs.
BOOST_AUTO_TEST_CASE(every_folder_of_inputs_has_a_target) {
  for (const auto& entry : fs::directory_iterator(fs::path(KFORMER_SOURCE_DIR) / "tests/fuzz/corpus"))
    BOOST_TEST(find_fuzz_target(entry.path().filename().string()) != nullptr, entry.path().string());
}

// Readers with the faults that the limit of memory is for.
BOOST_AUTO_TEST_CASE(memory_beyond_the_size_of_the_input_is_a_fault) {
  const auto refused = [](void (*reader)(std::string_view), std::string_view bytes = "16") {
    BOOST_CHECK_EXCEPTION(is_read({"reader", reader}, bytes), std::logic_error,
                          [&](const std::logic_error& error) {
                            return std::string_view(error.what()).starts_with("reader held ");
                          });
  };
  // A count that the file claims, of a file that is refused then.
  refused([](std::string_view count) {
    std::vector<std::int64_t> numbers;
    numbers.reserve(std::size_t{1} << std::stoi(std::string(count)) << 5);
    use(numbers.data());
    throw FileError("not as many numbers as it says");
  });
  // The same in small pieces.
  refused([](std::string_view count) {
    std::vector<std::unique_ptr<std::array<char, 1000>>> pieces(std::size_t{1}
                                                                << std::stoi(std::string(count)));
    for (auto& piece : pieces) piece = std::make_unique<std::array<char, 1000>>();
    use(pieces.data());
  });
  struct alignas(64) Line {
    char bytes[64];
  };
  refused([](std::string_view) {
    const std::vector<Line> lines(1 << 20);
    use(lines.data());
  });
  // What is given back does not add up, and a large input may take more.
  const auto read = [](std::string_view bytes) {
    for (int n = 0; n < 100; ++n) {
      const std::string copy(bytes.size() * 100, ' ');
      use(copy.data());
    }
  };
  BOOST_TEST(is_read({"reader", read}, std::string(1 << 20, ' ')));
}

BOOST_AUTO_TEST_CASE(checkpoints) { read_all(checkpoint_targets()); }
BOOST_AUTO_TEST_CASE(adapters) { read_all(adapter_targets()); }
BOOST_AUTO_TEST_CASE(tensors) { read_all(tensor_targets()); }
BOOST_AUTO_TEST_CASE(checkpoints_of_training) { read_all(training_targets()); }
BOOST_AUTO_TEST_CASE(texts) { read_all(text_targets()); }
BOOST_AUTO_TEST_CASE(training_data) { read_all(data_targets()); }
// Changed at random, they would test libhdf5 rather than its callers.
BOOST_AUTO_TEST_CASE(hdf5_files) { read_all(hdf5_targets(), 0); }
BOOST_AUTO_TEST_CASE(decks) { read_all(deck_targets()); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
