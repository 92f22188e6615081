// SPDX-License-Identifier: MIT
#include "data/sequence_layout.hpp"

#include <algorithm>
#include <utility>

#include "kformer/data/best_fit.hpp"

namespace kformer::Impl::data {
namespace {

std::vector<Piece> cut(std::span<const std::int64_t> offsets, std::int64_t seq_len) {
  std::vector<Piece> pieces;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    const std::int64_t end = offsets[i];
    for (std::int64_t first = offsets[i - 1]; first < end; first += seq_len) {
      const std::int64_t length = std::min(seq_len, end - first);
      pieces.push_back({first, static_cast<std::int32_t>(length), first + length == end});
    }
  }
  return pieces;
}

SequenceLayout pack(const std::vector<Piece>& pieces, std::int64_t seq_len) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(pieces.size());
  for (const Piece& piece : pieces) lengths.push_back(piece.length);
  Bins bins = best_fit_decreasing(lengths, seq_len);
  SequenceLayout layout;
  layout.pieces.reserve(pieces.size());
  for (const std::int64_t item : bins.items) layout.pieces.push_back(pieces[static_cast<std::size_t>(item)]);
  layout.first = std::move(bins.first);
  return layout;
}

}  // namespace

std::span<const Piece> SequenceLayout::sequence(std::int64_t index) const {
  const auto i = static_cast<std::size_t>(index);
  return std::span(pieces).subspan(static_cast<std::size_t>(first[i]),
                                   static_cast<std::size_t>(first[i + 1] - first[i]));
}

SequenceLayout lay_out(Packing packing, std::span<const std::int64_t> offsets, std::int64_t seq_len) {
  SequenceLayout layout;
  layout.pieces = cut(offsets, seq_len);
  if (packing == Packing::best_fit) return pack(layout.pieces, seq_len);
  for (std::size_t i = 0; i < layout.pieces.size(); ++i)
    layout.first.push_back(static_cast<std::int64_t>(i) + 1);
  return layout;
}

}  // namespace kformer::Impl::data
