// SPDX-License-Identifier: MIT
#include "decks/prompt_checks.hpp"
#include "decks/engine/limits.hpp"

#include <fmt/format.h>

#include <set>

#include "io/schema/read_file.hpp"
#include "io/schema/toml_text.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {
namespace {

// Faults of one prompt, each at the key it is about.
class PromptCheck {
 public:
  PromptCheck(const Value& element, std::size_t index, Diagnostics& diagnostics)
      : m_element(element), m_index(index), m_diagnostics(diagnostics) {}

  void source(const PromptTable& prompt) const {
    const int sources = prompt.text.has_value() + prompt.chat.has_value() + !prompt.file.empty();
    // A source of the wrong type has its error already.
    const bool given = given_at("text") || given_at("file") || given_at("chat");
    if (sources == 0 && !given)
      error({}, fmt::format("'prompt[{}]' has no text; give one of 'text', 'file' and 'chat'", m_index));
    if (sources > 1)
      error({}, fmt::format("'prompt[{}]' has more than one of 'text', 'file' and 'chat'", m_index));
    if (prompt.system && !prompt.chat)
      error("system", fmt::format("'{}' needs a 'chat'", name_of_key("system")));
  }

  void lengths(const PromptTable& prompt) const {
    for (const auto& [key, text] :
         {std::pair{"text", &prompt.text}, {"chat", &prompt.chat}, {"system", &prompt.system}})
      if (*text) check_length_of_text(**text, name_of_key(key), place_of_key(key), m_diagnostics);
  }

  void files(const PromptTable& prompt) const {
    for (const auto& [key, path] : {std::pair{"file", &prompt.file}, {"expect_file", &prompt.expect_file}}) {
      if (path->empty()) continue;
      try {
        read_file(*path, 1);
      } catch (const FileError& fault) {
        error(key, fault.what());
      }
    }
  }

  void expectation(const GenerateDeck& deck) const {
    if (deck.sampling.temperature == 0 || deck.generate.batch == 1) return;
    for (const char* key : {"expect_file", "expect_ids"})
      if (given_at(key))
        error(key,
              fmt::format("'{}' describes one sequence, but with 'sampling.temperature' > 0 the {} rows of "
                          "the batch differ",
                          name_of_key(key), deck.generate.batch));
  }

  void adapter(const PromptTable& prompt, const std::vector<NamedAdapterTable>& adapters) const {
    if (prompt.adapter.empty()) return;
    for (const NamedAdapterTable& one : adapters)
      if (one.name == prompt.adapter) return;
    error("adapter", fmt::format("'{}' = \"{}\" is the name of none of [[adapters]]", name_of_key("adapter"),
                                 prompt.adapter));
  }

  void error(const std::string& key, std::string message) const {
    m_diagnostics.error(place_of_key(key), std::move(message));
  }

  std::string name_of_key(const std::string& key) const { return fmt::format("prompt[{}].{}", m_index, key); }

 private:
  const Entry* entry_of(const std::string& key) const {
    const auto* table = std::get_if<Table>(&m_element.data);
    return table == nullptr ? nullptr : find(*table, key);
  }
  bool given_at(const std::string& key) const { return entry_of(key) != nullptr; }
  Place place_of_key(const std::string& key) const {
    const Entry* entry = entry_of(key);
    return entry == nullptr ? m_element.place : entry->value.place;
  }

  const Value& m_element;
  std::size_t m_index;
  Diagnostics& m_diagnostics;
};

}  // namespace

void check_length_of_text(const std::string& text, const std::string& name, const Place& place,
                          Diagnostics& diagnostics) {
  constexpr std::size_t key_and_quotes = 100;
  if (toml_text(text).size() + key_and_quotes > max_line_bytes)
    diagnostics.error(place, fmt::format("'{}' has {} bytes, too many for a deck; put long texts into files",
                                         name, text.size()));
}

void check_prompts(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const Entry* entry = find_path(loaded.root, {"prompt"});
  const auto* elements = entry == nullptr ? nullptr : std::get_if<Array>(&entry->value.data);
  if (entry == nullptr || (elements != nullptr && elements->empty())) {
    const Place top{loaded.source, 1, 1, 0};
    diagnostics.error(entry == nullptr ? top : entry->value.place,
                      "no prompt to continue; add a [[prompt]], with text = \"\" for an empty one");
  }
  if (elements == nullptr) return;
  std::set<std::string> names;
  for (std::size_t i = 0; i < deck.prompts.size(); ++i) {
    const PromptTable& prompt = deck.prompts[i];
    const PromptCheck check((*elements)[i], i, diagnostics);
    check.source(prompt);
    check.lengths(prompt);
    check.files(prompt);
    check.expectation(deck);
    check.adapter(prompt, deck.adapters);
    if (!names.insert(prompt.name).second)
      check.error("name", fmt::format("'{}' = \"{}\" is the name of an earlier prompt",
                                      check.name_of_key("name"), prompt.name));
  }
}

}  // namespace kformer::Impl::schema
