// SPDX-License-Identifier: MIT
#include "decks/generate_deck.hpp"

#include <fmt/format.h>

#include "decks/engine/deck_of_kind.hpp"
#include "decks/generate_checks.hpp"
#include "decks/generate_schema.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "io/schema/read_file.hpp"

namespace kformer {

using namespace Impl::schema;

namespace {

void fill_in_defaults(GenerateDeck& deck, const LoadedDeck& loaded) {
  if (!has(loaded, {"sampling", "seed"})) deck.sampling.seed = deck.run.seed;
  fill_in_recent(deck.generate.cache, "generate", loaded);
  for (std::size_t i = 0; i < deck.prompts.size(); ++i)
    if (deck.prompts[i].name.empty()) deck.prompts[i].name = fmt::format("prompt{}", i + 1);
}

std::string text_of_file(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{16} << 20;
  std::string text = read_file(path, most_bytes + 1);
  if (text.size() > most_bytes)
    throw FileError(
        fmt::format("'{}' has more than {} bytes, too many for a prompt", path.string(), most_bytes));
  return text;
}

}  // namespace

GenerateDeck load_generate_deck(const DeckSource& source) {
  const LoadedDeck loaded = load_deck(source, generate_kind);
  Diagnostics diagnostics;
  auto deck = read_deck<GenerateDeck>(loaded, source, diagnostics);
  fill_in_defaults(deck, loaded);
  check_generate_deck(deck, loaded, diagnostics);
  diagnostics.throw_if_any();
  record_deck(deck, loaded);
  return deck;
}

std::int32_t adapter_of(const GenerateDeck& deck, const PromptTable& prompt) {
  if (deck.adapter.live) return 0;
  for (std::size_t k = 0; k < deck.adapters.size(); ++k)
    if (deck.adapters[k].name == prompt.adapter) return static_cast<std::int32_t>(k);
  return -1;
}

std::string prompt_text(const PromptTable& prompt) {
  if (!prompt.file.empty()) return text_of_file(prompt.file);
  return prompt.text ? *prompt.text : prompt.chat.value_or("");
}

std::optional<std::string> expected_text(const PromptTable& prompt) {
  if (prompt.expect_file.empty()) return {};
  return text_of_file(prompt.expect_file);
}

std::string execution_space_of(const GenerateTable& table, const std::vector<std::string>& built_spaces) {
  if (table.execution_space == "default") return built_spaces.front();
  require_built("generate.execution_space", table.execution_space, built_spaces);
  return table.execution_space;
}

template <>
std::string describe_deck_markdown<GenerateDeck>() {
  return deck_markdown<GenerateDeck>();
}

template <>
std::string describe_deck_json_schema<GenerateDeck>() {
  return deck_json_schema<GenerateDeck>(generate_kind, "A checkpoint continues prompts.");
}

}  // namespace kformer
