// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "attention_cases.hpp"

namespace kformer::perf {

/// The machine's host space, in which everything is timed.
using Space = Kokkos::DefaultHostExecutionSpace;

/// Bytes of the largest cache; more than these lie between two uses of the same operand.
std::size_t last_level_cache_bytes();

/// A case with its operands in memory, warmed up and ready to be timed.
class AttentionRun {
 public:
  virtual ~AttentionRun() = default;
  /// Seconds of one call, from an idle instance to an idle instance. Each call takes the operands that have
  /// been out of the caches for longest.
  virtual double seconds() = 0;
  /// The name of the kernel that runs.
  virtual const std::string& kernel() const = 0;
};

/// \throws NotSupported if no kernel accepts the case
std::unique_ptr<AttentionRun> make_attention_run(const AttentionCase& what);

}  // namespace kformer::perf
