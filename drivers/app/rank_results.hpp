// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

#include "app/ranks.hpp"
#include "kformer/io/result_file.hpp"
#include "kformer/memory/ledger.hpp"

namespace kformer::drivers {

/// A table of a result file with a number for each class of memory.
Table& table_by_class(ResultFile& file, const std::string& path, const std::string& row,
                      const std::string& about);

/// The tables of a result file on ranks that run together.
class RankResults {
 public:
  /// Declares them.
  explicit RankResults(ResultFile& file);
  /// The rows of /memory/ranks: what each rank was to need, and needed. All ranks call it.
  /// \param space execution space of this rank
  void add_memory(Ranks& ranks, const std::string& space, const Ledger& forecast, const Ledger& ledger);
  /// The rows of /communication: what each rank sent. All ranks call it.
  /// \param own communicators of this rank
  void add_communication(Ranks& ranks, std::span<const Communicator* const> own);

 private:
  Table& m_memory;
  Table& m_communication;
};

}  // namespace kformer::drivers
