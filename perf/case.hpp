// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/scalar.hpp"
#include "run.hpp"

namespace kformer::perf {

/// What a call cannot be faster than.
enum class Limit {
  arithmetic,  ///< its operations at the rate of `measure::flop_rate_limit`, or of `int8_rate_limit`
  memory,      ///< its bytes, or those it reads, at the bandwidths of `measure::Bandwidths::largest_of_each`
  sum          ///< both in sequence: parts of either kind, all bytes at the larger bandwidth
};

/// One call to be timed.
struct Case {
  std::string block;      ///< what computes, such as `rms_norm`
  std::string direction;  ///< `forward`, `backward`, …
  DType dtype = DType::f32;
  std::string tail;  ///< which shape, such as `H2048`
  Limit limit = Limit::memory;
  double flops = 0;    ///< by the field's convention; of a sum those of its arithmetic parts
  double bytes = 0;    ///< the least it must move, every operand once; of a sum those of its memory parts
  double written = 0;  ///< of these, the ones that are written
  bool int8 = false;   ///< whether its operations are products of 8-bit activations
  std::vector<std::pair<const char*, std::int64_t>> shape;  ///< so that other programs can run the same case
  /// A run whose operands are used again after so many bytes of others.
  /// \throws NotSupported if no kernel accepts it
  std::function<std::unique_ptr<Run>(std::size_t rotated_bytes)> make;

  /// `rms_norm/forward/f32/H2048`
  std::string name() const { return block + '/' + direction + '/' + to_string(dtype) + '/' + tail; }
};

}  // namespace kformer::perf
