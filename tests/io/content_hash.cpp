// SPDX-License-Identifier: MIT
#include "io/content_hash.hpp"

#include <boost/test/unit_test.hpp>
#include <set>
#include <string>

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(content_hash)

// By the Python package mmh3, hash64(text, 0, True, False).
BOOST_AUTO_TEST_CASE(published_values) {
  BOOST_TEST(Impl::hash_of("").text() == "00000000000000000000000000000000");
  BOOST_TEST(Impl::hash_of("The quick brown fox jumps over the lazy dog").text() ==
             "e34bbc7bbc071b6c7a433ca9c49a9347");
  BOOST_TEST(Impl::hash_of("abcdefghi").text() == "0547c0cff13c796479b53df5b741e033");
  BOOST_TEST(Impl::hash_of("abcdefghijklmnopq").text() == "7564747f88bda657ecda499da1110de4");
  BOOST_TEST(Impl::hash_of("The quick brown fox jumps over the lazy cog").text() ==
             "658ca970ff85269a43fee3eaa68e5c3e");
}

BOOST_AUTO_TEST_CASE(every_byte_and_the_length_count) {
  std::set<std::string> hashes;
  for (std::size_t size = 0; size < 50; ++size) {
    hashes.insert(Impl::hash_of(std::string(size, '\0')).text());
    for (std::size_t at = 0; at < size; ++at) {
      std::string text(size, '\0');
      text[at] = '\1';
      hashes.insert(Impl::hash_of(text).text());
    }
  }
  BOOST_TEST(hashes.size() == 50u + 49u * 50u / 2u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
