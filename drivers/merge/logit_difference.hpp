// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kformer/io/result_file.hpp"

/// \file
/// What merging an adapter into weights changes.

namespace kformer::drivers {

/// Logits by token and word.
using Logits = std::vector<std::vector<double>>;

/// How the logits of a model differ from those of another, over all words of all tokens.
struct LogitDifference {
  std::int64_t tokens = 0;    ///< how many
  double max_err = 0;         ///< largest difference
  double rms_err = 0;         ///< root of the mean square of the differences
  double divergence = 0;      ///< KL(p ‖ q) of the next word, the mean over tokens, in nats
  double max_divergence = 0;  ///< the largest
  double same_first = 0;      ///< share of the tokens after which both have the same most likely word
};

/// \param exact p
/// \param other q, as many tokens and words
LogitDifference difference(const Logits& exact, const Logits& other);

/// A line on a model with a merged adapter.
std::string report_text(const std::string& name, const LogitDifference& difference);

/// Writes down how a model with a merged adapter differs from weights and adapter.
/// \param group of the file, such as "merged"
void write_difference(ResultFile& file, const std::string& group, const LogitDifference& difference);

}  // namespace kformer::drivers
