// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <vector>

#include "kformer/io/adapter.hpp"

namespace kformer::drivers {

/// The GGUF file of an adapter, for llama.cpp.
class AdapterFile {
 public:
  /// Checks that the file can be there and can have the adapter; creates nothing.
  /// \param path    of the file
  /// \param adapter which must exist as long as this object
  /// \param sources what is read: files, and folders with files of a checkpoint or an adapter. None of them is replaced
  /// \param replace whether a file may be there already
  /// \throws FileError naming the path and the reason
  AdapterFile(std::filesystem::path path, const AdapterCheckpoint& adapter,
              const std::vector<std::filesystem::path>& sources, bool replace);

  /// Writes it as `write_gguf_adapter`.
  /// \throws FileError if that is impossible
  void write(const LlamaConfig& model) const;

  const std::filesystem::path& path() const { return m_path; }

 private:
  std::filesystem::path m_path;
  const AdapterCheckpoint& m_adapter;
};

}  // namespace kformer::drivers
