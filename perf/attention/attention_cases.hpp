// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/ops/attention.hpp"

namespace kformer::perf {

/// What computes attention.
enum class Algorithm {
  chosen,    ///< flash attention by the kernel the library chooses
  portable,  ///< flash attention by the portable kernel
  functor,   ///< flash attention with the window as a mask functor that names its keys
  standard   ///< the scores in memory
};

/// One call to be timed.
struct AttentionCase {
  std::string tail;  ///< last part of the name, such as `D64/S2048/full`
  Algorithm algorithm = Algorithm::chosen;
  bool backward = false;
  AttentionShape shape;
  AttentionOptions options;

  /// Operations by the field's convention: 4·B·H·Lq·Lk·D forward, halved when causal; 2.5 times that backward.
  /// With a window, the pairs inside it count.
  double flops() const;
  /// The least bytes forward must move: every operand once.
  double forward_bytes() const;
  /// The bytes of its result.
  double out_bytes() const;
  /// Whether memory rather than arithmetic limits it: one query reads all keys and values.
  bool is_decode() const { return shape.q_len == 1; }
};

/// All cases, in the order they are run.
std::vector<AttentionCase> attention_cases();

/// A few that take milliseconds, to see that everything works.
std::vector<AttentionCase> attention_smoke_cases();

}  // namespace kformer::perf
