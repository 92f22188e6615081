// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "io/results/run_lock.hpp"

namespace kformer::drivers {

/// One name for one folder, whatever a user calls it: absolute, without links, dots, and a slash at the end.
std::filesystem::path resolved_folder(const std::filesystem::path& path);

/// A folder that receives files together, when all are written: until then they are in a folder inside it. Files of others
/// stay as they are.
class StagedFolder {
 public:
  /// Does nothing.
  /// \param name    what errors call it, such as "output.model"
  /// \param path    it need not exist
  /// \param program that writes it
  StagedFolder(std::string name, const std::filesystem::path& path, const std::string& program);

  const std::filesystem::path& path() const { return m_path; }
  /// Where the files are until all are written.
  std::filesystem::path staging() const { return m_path / m_staging; }

  /// \throws FileError naming the folder and the reason
  [[noreturn]] void refuse(const std::string& reason) const;
  /// Calls `f`. What the file system has against it is an error of this folder.
  /// \throws FileError as `refuse`
  void with_errors(const std::function<void()>& f) const;
  /// Refuses what is no folder, and one that has files. What a killed run left does not count.
  /// \param replace whether it may have files
  /// \param advice  to replace them
  void require_usable(bool replace, const std::string& advice) const;

  /// Makes the folders above, and keeps other runs out until the end, which also drops what `make` made.
  /// \throws FileError if another run writes there
  void claim();
  /// Makes the folder, and `staging`, which is empty. After `claim`.
  void make() const;
  /// Removes `staging`, and the folder if this object made it and nothing else is in it.
  void drop() const;
  /// Makes them, lets `write` write the files and move them to their places, and drops the rest.
  void fill(const std::function<void()>& write) const;

 private:
  // What is there as long as a run may write.
  struct Claim {
    explicit Claim(const StagedFolder& folder) : path(folder.m_path), staging(folder.staging()), lock(path) {}
    ~Claim() { drop(); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    void drop();

    std::filesystem::path path, staging;
    Impl::RunLock lock;
    bool made = false;  // the folder
  };

  std::string m_name, m_staging;
  std::filesystem::path m_path;
  std::unique_ptr<Claim> m_claim;
};

}  // namespace kformer::drivers
