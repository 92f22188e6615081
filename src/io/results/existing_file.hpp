// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>

namespace kformer::Impl {

/// What lies at the name of a result file.
enum class ExistingFile {
  none,
  without_cases,  ///< a result file of a run that ended before its first case was finished
  with_cases,     ///< a result file
  foreign         ///< anything else: not ours to replace
};

ExistingFile existing_file(const std::filesystem::path& path);

}  // namespace kformer::Impl
