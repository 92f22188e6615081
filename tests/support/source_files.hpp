// SPDX-License-Identifier: MIT
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

/// \file
/// Files of the sources that tests read. A program that was carried to another machine finds its copies in
/// the folder KFORMER_SOURCE: scripts/gpu_check sets it.

namespace kformer::Testing {

inline std::filesystem::path source_folder() {
  const char* carried = std::getenv("KFORMER_SOURCE");
  return carried != nullptr ? carried : KFORMER_SOURCE_DIR;
}

/// A file or folder of tests/data.
inline std::filesystem::path test_data(const std::string& name) {
  return source_folder() / "tests/data" / name;
}

/// A checkpoint of random weights in bfloat16.
inline std::filesystem::path tiny_llama() { return source_folder() / "inputs/tiny-llama"; }

}  // namespace kformer::Testing
