// SPDX-License-Identifier: MIT
#include "decks/engine/load.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "decks/engine/common_tables.hpp"
#include "decks/engine/parse.hpp"
#include "io/schema/read_file.hpp"
#include "io/schema/reader.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::schema {
namespace {

namespace fs = std::filesystem;
using SourcePtr = std::shared_ptr<const SourceText>;

constexpr std::size_t max_include_depth = 8;

// Reads decks depth first; `m_open` are the decks between the first one and the one being read.
class IncludeReader {
 public:
  explicit IncludeReader(Diagnostics& diagnostics) : m_diagnostics(diagnostics) {}

  std::optional<Table> read(const SourcePtr& source, const fs::path& path) {
    m_open.push_back(path);
    auto own = parse_toml(source, m_diagnostics);
    if (own) own = with_include(std::move(*own));
    m_open.pop_back();
    return own;
  }

  SourcePtr take(const DeckSource& deck) {
    return std::make_shared<SourceText>(
        SourceText{"deck of this call", fs::current_path(), deck.text, m_opened++});
  }

  SourcePtr open(const fs::path& path) {
    const auto directory = fs::absolute(path).parent_path();
    return std::make_shared<SourceText>(
        SourceText{path.string(), directory, read_file(path, max_text_bytes + 1), m_opened++});
  }

 private:
  std::optional<Table> with_include(Table own) {
    const Entry* include = find(own, "include");
    if (include == nullptr) return own;
    auto base = included(include->value);
    std::erase_if(own, [](const Entry& entry) { return entry.key == "include"; });
    if (!base) return std::nullopt;
    for (const char* key : {"schema", "kind"}) report_difference(*base, own, key);
    merge(*base, std::move(own));
    return base;
  }

  std::optional<Table> included(const Value& value) {
    const auto* name = std::get_if<std::string>(&value.data);
    if (name == nullptr || name->empty())
      return fail(value.place, fmt::format("'include' must be the path of a deck, got {}", shown(value)));
    const fs::path path = (m_open.back().parent_path() / *name).lexically_normal();
    const auto same = [&](const fs::path& open) {
      return fs::weakly_canonical(open) == fs::weakly_canonical(path);
    };
    if (std::any_of(m_open.begin(), m_open.end(), same)) {
      std::string chain;
      for (const auto& open : m_open) chain += open.string() + " -> ";
      return fail(value.place, "the deck includes itself: " + chain + path.string());
    }
    if (m_open.size() > max_include_depth)
      return fail(value.place, fmt::format("includes are nested deeper than {}", max_include_depth));
    try {
      return read(open(path), path);
    } catch (const FileError& error) {
      return fail(value.place, error.what());
    }
  }

  std::nullopt_t fail(const Place& place, std::string message) {
    m_diagnostics.error(place, std::move(message));
    return std::nullopt;
  }

  void report_difference(const Table& base, const Table& own, const char* key) {
    const Entry* below = find(base, key);
    const Entry* above = find(own, key);
    if (below == nullptr || above == nullptr || shown(below->value) == shown(above->value)) return;
    m_diagnostics.error(below->place, fmt::format("'{}' is {}, but {} in the deck that includes this one", key,
                                                  shown(below->value), shown(above->value)));
  }

  Diagnostics& m_diagnostics;
  std::vector<fs::path> m_open;
  int m_opened = 0;
};

void merge_overrides(Table& root, const DeckSource& source, const fs::path& directory,
                     Diagnostics& diagnostics) {
  constexpr int after_all_decks = 1 << 20;
  int rank = after_all_decks;
  const auto add = [&](const std::string& name, const std::string& change) {
    const auto text = std::make_shared<SourceText>(SourceText{name, directory, change, rank++});
    auto table = parse_override(text, diagnostics);
    if (!table) return;
    if (const Entry* include = find(*table, "include"))
      diagnostics.error(include->place, "'include' belongs in a deck; --set cannot add one");
    else
      merge(root, std::move(*table));
  };
  // The model of a call replaces that of the deck as a whole: keys of two models make a third.
  if (!source.model_overrides.empty())
    std::erase_if(root, [](const Entry& entry) { return entry.key == "model"; });
  for (const std::string& change : source.model_overrides) add("--model", change);
  for (std::size_t i = 0; i < source.overrides.size(); ++i)
    add(fmt::format("--set[{}]", i + 1), source.overrides[i]);
}

// Which program reads a deck of another kind; empty for a kind that there is not.
std::string program_of(std::string_view kind) {
  constexpr std::array<std::pair<std::string_view, const char*>, 6> programs{
      {{"layer_sweep", "kformer-layer"},
       {"attention_compare", "kformer-attention"},
       {"generate", "kformer-generate"},
       {"memory_plan", "kformer-memory"},
       {"scaling", "kformer-scaling"},
       {"train", "kformer-train"}}};
  const auto found = std::ranges::find(programs, kind, &std::pair<std::string_view, const char*>::first);
  return found == programs.end() ? "" : found->second;
}

// Whether the deck is one of another program; that is the fault then, and not its name.
bool is_of_another_program(const Table& root, std::string_view kind, Diagnostics& diagnostics) {
  const Entry* entry = find(root, "kind");
  const auto* given = entry == nullptr ? nullptr : std::get_if<std::string>(&entry->value.data);
  if (given == nullptr || *given == kind || program_of(*given).empty()) return false;
  diagnostics.error(entry->value.place,
                    fmt::format("this is a deck of {}, not of {}", program_of(*given), program_of(kind)),
                    fmt::format("run: {} {}", program_of(*given), entry->value.place.source->name));
  return true;
}

void check_header(const Table& root, const SourcePtr& source, std::string_view kind, Diagnostics& diagnostics) {
  if (is_of_another_program(root, kind, diagnostics)) return;
  Reader reader(root, {source, 1, 1, 0}, "", diagnostics);
  DeckHeader header;
  describe_header(reader, header, {kind});
}

}  // namespace

LoadedDeck load_deck(const DeckSource& source, std::string_view kind) {
  Diagnostics diagnostics;
  IncludeReader includes(diagnostics);
  const SourcePtr text = source.text.empty() ? includes.open(source.path) : includes.take(source);
  auto root = includes.read(text, source.path);
  if (root && root->empty())
    diagnostics.error({text},
                      fmt::format("the deck is empty; it starts with schema = 1 and kind = \"{}\"", kind));
  Table merged = root ? std::move(*root) : Table();
  merge_overrides(merged, source, text->directory, diagnostics);
  diagnostics.throw_if_any();
  check_header(merged, text, kind, diagnostics);
  diagnostics.throw_if_any();
  return {std::move(merged), text};
}

}  // namespace kformer::Impl::schema
