// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <memory>

#include "kformer/memory/ledger.hpp"
#include "support/tools.hpp"

/// \file
/// What models book, what they forecast, and what Kokkos allocates.

namespace kformer::Testing {

/// The ledgers of two calls, one that allocated and one that counted.
struct BookedMemory {
  std::shared_ptr<Ledger> ledger, forecast;
};

/// Calls `live(ledger)`, after which nothing may be left: first with a ledger that counts, which allocates
/// nothing, then with one that allocates what it books and what the other one forecast.
template <class Live>
BookedMemory check_booked_memory(Live live) {
  const BookedMemory booked{Ledger::create(), Ledger::create(Ledger::Mode::count)};
  const ToolsRecorder witness;
  live(booked.forecast);
  BOOST_TEST(witness.allocations().empty());
  live(booked.ledger);
  BOOST_TEST(witness.peak_bytes() == booked.ledger->peak_total());
  BOOST_TEST(witness.current_bytes() == 0u);
  BOOST_TEST(booked.forecast->peak_total() == booked.ledger->peak_total());
  return booked;
}

}  // namespace kformer::Testing
