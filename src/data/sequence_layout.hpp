// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kformer/core/types/data_format.hpp"

namespace kformer::Impl::data {

/// Consecutive tokens of one document.
struct Piece {
  std::int64_t first;   ///< token of the store
  std::int32_t length;  ///< 1 … seq_len
  bool ends;            ///< with its document
};

/// Which pieces fill the sequences of best_fit and pad. Sequence i has pieces first[i] … first[i + 1] − 1.
struct SequenceLayout {
  std::vector<Piece> pieces;
  std::vector<std::int64_t> first{0};

  std::int64_t size() const { return std::ssize(first) - 1; }
  std::span<const Piece> sequence(std::int64_t index) const;
};

/// \param packing best_fit or pad
/// \param offsets of documents, and the end
SequenceLayout lay_out(Packing packing, std::span<const std::int64_t> offsets, std::int64_t seq_len);

}  // namespace kformer::Impl::data
