// SPDX-License-Identifier: MIT
#pragma once

#include "ops/cross_entropy/cuda/arguments.hpp"

/// \file
/// Logits in float, capped or not.

namespace kformer::Impl::cuda {

inline constexpr int cross_entropy_threads = 256;
/// Chunks of 16 bytes that a thread has on their way at once.
inline constexpr int logit_chunks = 4;

/// Logits as they are.
class PlainLogits {
 public:
  KFORMER_DEVICE explicit PlainLogits(float) {}
  KFORMER_DEVICE float operator()(float x) const { return x; }
  /// dz/dx where the logit became z.
  KFORMER_DEVICE float slope(float) const { return 1; }
};

/// z = c·tanh(x/c).
class CappedLogits {
 public:
  KFORMER_DEVICE explicit CappedLogits(float cap) : m_cap(cap) {}
  KFORMER_DEVICE float operator()(float x) const { return m_cap * accurate_tanh(x / m_cap); }
  KFORMER_DEVICE float slope(float z) const {
    const float t = z / m_cap;
    return 1 - t * t;
  }

 private:
  float m_cap;
};

template <class T>
KFORMER_DEVICE const T* logits_of_row(const CrossEntropyArguments& a, std::int64_t row) {
  return static_cast<const T*>(a.logits) + row * a.logits_stride;
}

/// The target's logit is one.
KFORMER_DEVICE bool is_token(const CrossEntropyArguments& a, std::int32_t target) {
  return target >= 0 && target < a.vocabulary;
}

}  // namespace kformer::Impl::cuda
