// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>

#include "kformer/core/types/data_format.hpp"

/// \file
/// Generated tasks for examples and tests: data without files.

namespace kformer {

/// A generated data set.
struct SyntheticOptions {
  SyntheticTask task = SyntheticTask::copy;  ///< what is asked
  std::int64_t samples = 1000;               ///< documents
  std::int64_t max_length = 8;  ///< letters of a text, digits of a summand (at most 18); at least 1
  std::uint64_t seed = 0;       ///< of all samples
};

/// One sample.
struct SyntheticSample {
  std::string prompt;  ///< "bca=", "17+25="
  std::string answer;  ///< what a model learns to say: "acb", "42"
};

/// A sample. Texts are of the letters a to z; lengths, letters and digits are uniform.
/// \param options task, seed and lengths
/// \param index   which; the result is a function of the options and this alone
/// \throws Error if max_length is out of range
SyntheticSample synthetic_sample(const SyntheticOptions& options, std::int64_t index);

}  // namespace kformer
