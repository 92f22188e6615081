// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>

namespace kformer::Testing {

/// Requires that `call` throws `E` with exactly this text.
template <class E, class F>
void check_error(F call, const std::string& text) {
  try {
    call();
    BOOST_ERROR("expected an error: " + text);
  } catch (const E& error) {
    BOOST_TEST(error.what() == text);
  }
}

/// What `from` was, which is moved from. Checks of the sources, which report a use after a move, do not see this one.
template <class T>
T moved_out_of(T& from) {
  return std::move(from);
}

}  // namespace kformer::Testing
