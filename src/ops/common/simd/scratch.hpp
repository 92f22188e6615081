// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/simd/vector.hpp"

/// \file
/// Scratch memory of a kernel.

namespace kformer::Impl::simd::KFORMER_ISA {

/// Hands out parts of scratch memory, each aligned to cache lines.
class Scratch {
 public:
  explicit Scratch(void* memory) : m_begin(static_cast<char*>(memory)) {}
  template <class C>
  C* take(std::int64_t count) {
    C* here = reinterpret_cast<C*>(m_begin + m_bytes);
    m_bytes += (count * static_cast<std::int64_t>(sizeof(C)) + 63) / 64 * 64;
    return here;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(m_bytes); }

 private:
  char* m_begin;
  std::int64_t m_bytes = 0;
};

/// Zeros; `count` a multiple of the width.
template <class C>
void clear(C* sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += width<C>) store(sums + i, Vector<C>{});
}

}  // namespace kformer::Impl::simd::KFORMER_ISA
