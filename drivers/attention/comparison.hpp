// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "attention/attention_case.hpp"

/// \file
/// Flash against standard, by sequence length.

namespace kformer::drivers {

/// Both implementations of attention at one length; NaN where one was not timed.
struct ComparedLength {
  static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
  std::array<double, 2> seconds{unknown, unknown};  ///< median by AttentionAlgorithm
  std::array<double, 2> bytes{unknown, unknown};    ///< peak of activations and workspace by AttentionAlgorithm

  bool noise = false;  ///< whether noise decides one of the times

  /// Time of standard over time of flash; NaN where noise decides one of them.
  double speedup() const { return noise ? unknown : seconds[0] / seconds[1]; }
  /// Bytes of flash over bytes of standard.
  double memory_ratio() const { return bytes[1] / bytes[0]; }
  /// Whether both were timed.
  bool complete() const { return seconds[0] == seconds[0] && seconds[1] == seconds[1]; }
};

/// All lengths of one configuration: of cases that differ only in seq_len and impl.
struct ComparedConfiguration {
  AttentionCase point;                             ///< seq_len and impl are ignored
  std::map<std::int64_t, ComparedLength> lengths;  ///< by seq_len

  /// The smallest length from which flash is faster at all longer lengths where both were timed without noise.
  std::optional<std::int64_t> crossover() const;
};

/// Collects the cases of a sweep.
class Comparison {
 public:
  /// A case that was timed.
  void add(const AttentionResult& result);
  /// In the order of their first case.
  const std::vector<ComparedConfiguration>& configurations() const { return m_configurations; }
  /// Whether any length was timed both ways.
  bool empty() const;
  /// Every length that any configuration has, ascending.
  std::vector<std::int64_t> lengths() const;

 private:
  std::vector<ComparedConfiguration> m_configurations;
};

}  // namespace kformer::drivers
