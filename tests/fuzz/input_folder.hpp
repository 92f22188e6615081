// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "io/scratch_directory.hpp"

namespace kformer::Testing {

/// A folder with one file whose contents change, for readers that take a path.
class InputFolder {
 public:
  /// \param name   of the file
  /// \param beside names and contents of other files in the folder
  explicit InputFolder(const std::string& name,
                       std::initializer_list<std::pair<std::string, std::string_view>> beside = {})
      : m_path(m_folder / name), m_file(::open(m_path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    if (m_file < 0) throw std::runtime_error("cannot write '" + m_path.string() + "'");
    for (const auto& [other, contents] : beside) put_contents(m_folder / other, std::string(contents));
  }
  InputFolder(const InputFolder&) = delete;
  InputFolder& operator=(const InputFolder&) = delete;
  ~InputFolder() { ::close(m_file); }

  /// Replaces the contents.
  /// \return the path of the file
  const std::filesystem::path& put(std::string_view bytes) const {
    if (::ftruncate(m_file, 0) != 0 || ::pwrite(m_file, bytes.data(), bytes.size(), 0) != std::ssize(bytes))
      throw std::runtime_error("cannot write '" + m_path.string() + "'");
    return m_path;
  }

  /// The folder.
  const std::filesystem::path& folder() const { return m_folder.path(); }

 private:
  ScratchDirectory m_folder;
  std::filesystem::path m_path;
  int m_file;
};

}  // namespace kformer::Testing
