// SPDX-License-Identifier: MIT
#pragma once

/// \file
/// The version of Kformer, for the preprocessor and for C++. CMake reads it from here.

#define KFORMER_VERSION_MAJOR 0  ///< changes when code that uses Kformer must change
#define KFORMER_VERSION_MINOR 2  ///< changes when functions are added; before 1.0 also when code must change
#define KFORMER_VERSION_PATCH 0  ///< changes when only bugs are fixed

/// The version as one number, for comparisons: 10000 · major + 100 · minor + patch.
#define KFORMER_VERSION (10000 * KFORMER_VERSION_MAJOR + 100 * KFORMER_VERSION_MINOR + KFORMER_VERSION_PATCH)

namespace kformer {

/// A version of Kformer.
struct Version {
  int major_number;  ///< `KFORMER_VERSION_MAJOR`
  int minor_number;  ///< `KFORMER_VERSION_MINOR`
  int patch_number;  ///< `KFORMER_VERSION_PATCH`
};

/// The version of these headers.
inline constexpr Version version{KFORMER_VERSION_MAJOR, KFORMER_VERSION_MINOR, KFORMER_VERSION_PATCH};

}  // namespace kformer
