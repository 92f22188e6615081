// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>

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

}  // namespace kformer::Testing
