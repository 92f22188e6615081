// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// \file
/// Writes GGUF files of 32-bit floats.

namespace kformer::Impl {

/// Collects what a file holds, and writes it.
class GgufWriter {
 public:
  /// A text.
  void add(const std::string& key, const std::string& value);
  /// A 32-bit float.
  void add(const std::string& key, float value);
  /// A tensor.
  /// \param rows   its first extent, the slowest
  /// \param values rows · columns of them
  void add(const std::string& name, std::size_t rows, std::vector<float> values);

  /// Writes version 3 of the format, completely or not at all.
  /// \throws FileError naming the file and the reason
  void write(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    std::size_t rows;
    std::vector<float> values;
  };
  std::string m_metadata;
  std::uint64_t m_metadata_count = 0;
  std::vector<Tensor> m_tensors;
};

}  // namespace kformer::Impl
