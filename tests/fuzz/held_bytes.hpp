// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>

/// \file
/// How much memory readers hold. The programs with these targets have operators new and delete of their own, which count. What C
/// libraries take from malloc is not counted.

namespace kformer::Testing {

/// What a reader may hold at a time, of an input of `size` bytes. The first part is for what does not depend on the size: the
/// largest is the table of a vocabulary with gaps, 2 MiB. The second is for trees: those of TOML take about 105 bytes for each byte
/// of a list of numbers, and may exist twice.
constexpr std::size_t allowed_bytes(std::size_t size) { return (std::size_t{4} << 20) + 256 * size; }

/// The most bytes that are held at a time while it lives, beyond those that were held before. Of two, the younger makes the older
/// forget what was held until then.
class HeldBytes {
 public:
  HeldBytes();
  std::size_t most() const;

 private:
  std::size_t m_before;
};

}  // namespace kformer::Testing
