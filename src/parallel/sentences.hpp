// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <set>
#include <sstream>
#include <string>

#include "kformer/parallel/communicator.hpp"

/// \file
/// Parts of the sentences in which communicators fail.

namespace kformer::Impl {

/// "0.5 s".
inline std::string seconds_text(std::chrono::duration<double> seconds) {
  std::ostringstream text;
  text << seconds.count() << " s";
  return text.str();
}

/// "rank 1", or "ranks 1, 2".
inline std::string ranks_text(const std::set<int>& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (const int r : ranks) text += (r == *ranks.begin() ? "" : ", ") + std::to_string(r);
  return text;
}

/// "kformer::MpiCommunicator: all_reduce of gradients: rank 0 of 'data' (4 ranks)".
inline std::string exchange_text(const char* communicator, const ExchangeName& exchange_name,
                                 const Communicator& ranks) {
  std::string text = std::string(communicator) + ": " + exchange_name.operation;
  if (!exchange_name.region.empty()) text += " of " + std::string(exchange_name.region);
  return text + ": rank " + std::to_string(ranks.rank()) + " of '" + ranks.name() + "' (" +
         std::to_string(ranks.size()) + " ranks)";
}

/// What a rank can do that waited for others.
inline constexpr const char* look_there = "; look there for an earlier error, or raise the time-out";

}  // namespace kformer::Impl
