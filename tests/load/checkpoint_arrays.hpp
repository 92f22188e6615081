// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "kformer/load/training_checkpoint.hpp"
#include "support/every_kernel.hpp"
#include "support/test_tensor.hpp"

/// \file
/// Arrays in files of checkpoints, for tests.

namespace kformer::Testing {

/// Arrays of every storage type and rank, filled with other bits for each seed.
class Arrays {
 public:
  explicit Arrays(unsigned seed) { fill(seed); }

  void fill(unsigned seed) {
    std::mt19937 generator(seed);
    const auto some = [&](std::size_t) { return static_cast<int>(generator() % 100); };
    f32.fill(some), bf16s.fill(some), f16s.fill(some), f64.fill(some), codes.fill(some), ids.fill(some);
  }
  std::vector<NamedArray> named() const {
    return {{"b", f32.ref()},   {"a", bf16s.ref()}, {"c", f16s.ref()},   {"d", f64.ref()},
            {"e", codes.ref()}, {"f", ids.ref()},   {"none", none.ref()}};
  }
  std::vector<std::vector<unsigned char>> bits() const {
    return {f32.bits(), bf16s.bits(), f16s.bits(), f64.bits(), codes.bits(), ids.bits()};
  }

 private:
  TestTensor<Exec, float> f32{{3, 5}, Rows::packed};
  TestTensor<Exec, bf16> bf16s{{7}, Rows::packed};
  TestTensor<Exec, f16> f16s{{2, 3, 5}, Rows::packed};
  TestTensor<Exec, double> f64{{1, 1}, Rows::packed};
  TestTensor<Exec, std::uint8_t> codes{{13}, Rows::packed};
  TestTensor<Exec, std::int32_t> ids{{4}, Rows::packed};
  TestTensor<Exec, float> none{{0, 4}, Rows::packed};
};

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The step of the newest good checkpoint, or −1; reasons to skip others go to `reasons`.
inline std::int64_t newest_step(const std::filesystem::path& folder,
                                std::vector<std::string>* reasons = nullptr) {
  const auto found = newest_good_checkpoint(folder, [&](const std::string& reason) {
    if (reasons) reasons->push_back(reason);
  });
  return found ? found->step() : -1;
}

}  // namespace kformer::Testing
