// SPDX-License-Identifier: MIT
#include "text/steps/piece_table.hpp"

#include <algorithm>

#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {

void PieceTable::add(std::string_view piece, std::int64_t id, const std::string& file) {
  const auto token = [&] { return "token " + in_quotes(piece) + " with id " + std::to_string(id); };
  const std::size_t tokens = std::max(m_expected, m_ids.size() + 1),
                    most = std::min<std::size_t>(most_ids, 2 * tokens + most_gaps);
  if (id < 0 || static_cast<std::uint64_t>(id) >= most)
    refuse(file, token() + ": ids must lie in [0, " + std::to_string(most) + ") in a vocabulary of " +
                     std::to_string(tokens));
  const auto index = static_cast<std::size_t>(id);
  if (index >= m_pieces.size()) {
    m_pieces.resize(index + 1);
    m_used.resize(index + 1, false);
  }
  if (m_used[index]) refuse(file, token() + ": " + in_quotes(m_pieces[index]) + " has that id already");
  if (!m_ids.emplace(piece, static_cast<std::int32_t>(id)).second)
    refuse(file, token() + ": it has the id " + std::to_string(*find(piece)) + " already");
  m_pieces[index] = piece;
  m_used[index] = true;
}

const std::string& PieceTable::piece(std::int64_t id) const {
  static const std::string none;
  return has(id) ? m_pieces[static_cast<std::size_t>(id)] : none;
}

std::optional<std::int32_t> PieceTable::find(std::string_view piece) const {
  const auto place = m_ids.find(piece);
  if (place == m_ids.end()) return {};
  return place->second;
}

}  // namespace kformer::Impl::tokenizers
