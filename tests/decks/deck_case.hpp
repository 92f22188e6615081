// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <string>
#include <utility>
#include <vector>

#include "decks/engine/deck.hpp"
#include "io/scratch_directory.hpp"

/// \file
/// What the tests of all kinds of decks share.

namespace kformer::Testing {

/// The execution spaces of a build.
inline const std::vector<std::string> built{"openmp", "serial"};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The first lines of a deck.
inline std::string header_of(const std::string& kind) { return "schema = 1\nkind = \"" + kind + "\"\n"; }

/// A model, but for the size of its vocabulary.
inline const std::string three_layers =
    "[model]\nhidden_size = 8\nnum_attention_heads = 4\nnum_key_value_heads = 2\nintermediate_size = 16\n"
    "num_hidden_layers = 3\n";

/// Decks in a directory of their own, read by `load_deck`.
template <auto load_deck>
struct DeckCase {
  ScratchDirectory directory;

  auto load(const std::string& text, std::vector<std::string> overrides = {}) const {
    put_contents(directory / "deck.toml", text);
    return load_deck({directory / "deck.toml", std::move(overrides)});
  }

  /// What is wrong with the deck. Errors name files by their path, which is cut down to the file name.
  std::string faults(const std::string& text, std::vector<std::string> overrides = {}) const {
    try {
      load(text, std::move(overrides));
    } catch (const DeckError& error) {
      return without_directory(error.what());
    }
    return "no fault";
  }

  std::string without_directory(std::string text) const {
    const std::string prefix = directory.path().string() + "/";
    for (auto at = text.find(prefix); at != std::string::npos; at = text.find(prefix))
      text.erase(at, prefix.size());
    return text;
  }
};

/// docs/decks/`kind`.md describes the decks of `program` as `description` does.
inline void check_documentation(const std::string& kind, const std::string& program,
                                const std::string& description) {
  const std::string page = contents_of(KFORMER_SOURCE_DIR "/docs/decks/" + kind + ".md");
  const std::string begin = "<!-- begin " + program + " --describe-deck -->\n";
  const auto from = page.find(begin), to = page.find("<!-- end " + program + " --describe-deck -->\n");
  BOOST_TEST_REQUIRE((from != std::string::npos && to != std::string::npos));
  BOOST_TEST(page.substr(from + begin.size(), to - from - begin.size()) == description,
             "put the output of " << program << " --describe-deck between the markers of docs/decks/" << kind
                                  << ".md");
}

}  // namespace kformer::Testing
