// SPDX-License-Identifier: MIT
#include "decks/generate_checks.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "decks/prompt_checks.hpp"
#include "decks/sweep/sweep_checks.hpp"

namespace kformer::Impl::schema {
namespace {

// The elements of a list of tables; null if the deck has none.
const Array* list_of(const LoadedDeck& loaded, const char* name) {
  const Entry* entry = find_path(loaded.root, {name});
  return entry == nullptr ? nullptr : std::get_if<Array>(&entry->value.data);
}

void check_weights(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.generate.activations == Activations::int8 && !deck.weights.keep_quantized)
    diagnostics.error(place_of(loaded, {"generate", "activations"}),
                      "'generate.activations' = \"int8\" needs quantised weights, but "
                      "'weights.keep_quantized' = false expands them");
}

void check_adapters(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (deck.adapter.live && deck.adapter.path.empty())
    diagnostics.error(place_of(loaded, {"adapter", "live"}), "'adapter.live' needs 'adapter.path'");
  if (deck.adapter.live && !deck.adapters.empty())
    diagnostics.error(
        place_of(loaded, {"adapter", "live"}),
        "'adapter.live' is the adapter of all prompts, but [[adapters]] gives them others; make it one "
        "of them");
  std::set<std::string> names;
  const auto* elements = list_of(loaded, "adapters");
  for (std::size_t k = 0; elements != nullptr && k < deck.adapters.size() && k < elements->size(); ++k) {
    const std::string& name = deck.adapters[k].name;
    if (name.empty())
      diagnostics.error((*elements)[k].place, fmt::format("'adapters[{}].name' must not be empty", k));
    else if (!names.insert(name).second)
      diagnostics.error((*elements)[k].place,
                        fmt::format("'adapters[{}].name' = \"{}\" is the name of an earlier adapter", k, name));
  }
}

void check_stop(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const Entry* entry = find_path(loaded.root, {"generate", "stop"});
  const auto* elements = entry == nullptr ? nullptr : std::get_if<Array>(&entry->value.data);
  for (std::size_t i = 0; i < deck.generate.stop.size(); ++i) {
    const Place place = elements != nullptr && i < elements->size() ? (*elements)[i].place
                                                                    : place_of(loaded, {"generate", "stop"});
    const std::string name = fmt::format("generate.stop[{}]", i);
    if (deck.generate.stop[i].empty()) diagnostics.error(place, fmt::format("'{}' must not be empty", name));
    check_length_of_text(deck.generate.stop[i], name, place, diagnostics);
  }
}

}  // namespace

void check_tokenizer(const TokenizerTable& tokenizer, const std::optional<WeightsTable>& weights,
                     const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (tokenizer.format == TokenizerFormat::byte && !tokenizer.path.empty())
    diagnostics.error(place_of(loaded, {"tokenizer", "path"}),
                      "'tokenizer.path' names a file, but 'tokenizer.format' = \"byte\" needs none");
  if (!weights) return;
  const bool elsewhere =
      weights->format == CheckpointFormat::safetensors || weights->format == CheckpointFormat::packed;
  if (tokenizer.format == TokenizerFormat::gguf && tokenizer.path.empty() && elsewhere)
    diagnostics.error(place_of(loaded, {"tokenizer", "format"}),
                      fmt::format("'tokenizer.format' = \"gguf\" needs 'tokenizer.path', because the weights "
                                  "are in format \"{}\"",
                                  name_of(weights->format)));
}

void fill_in_recent(KvCacheTable& cache, const char* table, const LoadedDeck& loaded) {
  if (!has(loaded, {table, "recent"})) cache.recent = cache.budget - cache.budget / 2;
}

void check_cache(KvCacheKind kind, const KvCacheTable& cache, const char* table,
                 const std::vector<std::string>& kind_key, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const auto needs = [&](const char* key) {
    diagnostics.error(
        place_of(loaded, kind_key),
        fmt::format("'{}' = \"{}\" needs '{}.{}' > 0", fmt::join(kind_key, "."), name_of(kind), table, key));
  };
  if (kind == KvCacheKind::window && cache.window == 0) needs("window");
  if (kind == KvCacheKind::heavy_hitters && cache.budget == 0) needs("budget");
  if (kind == KvCacheKind::heavy_hitters && cache.budget > 0 && cache.recent == 0) needs("recent");
  if (kind == KvCacheKind::heavy_hitters && cache.budget > 0 && cache.recent > cache.budget)
    diagnostics.error(
        place_of(loaded, {table, "recent"}),
        fmt::format("'{0}.recent' = {1} is more than '{0}.budget' = {2}", table, cache.recent, cache.budget));
}

namespace {

void check_batch_invariance(const GenerateTable& generate, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  const KvCacheKind kind = generate.kv_cache;
  if (!generate.batch_invariant || kind == KvCacheKind::contiguous || kind == KvCacheKind::paged ||
      kind == KvCacheKind::none)
    return;
  diagnostics.error(
      place_of(loaded, {"generate", "batch_invariant"}),
      fmt::format("'generate.batch_invariant' = true needs a cache that keeps what a query sees in its "
                  "place and unrounded: 'generate.kv_cache' = \"contiguous\" or \"paged\", not \"{}\"",
                  name_of(kind)));
}

void check_reference(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!deck.parallel || deck.parallel->tensor <= 1 || deck.parallel->backend != RankBackend::nccl ||
      deck.check.reference != GenerateReference::recompute)
    return;
  diagnostics.error(place_of(loaded, {"check", "reference"}),
                    "'check.reference' = \"recompute\" computes on the host, whose memory 'parallel.backend' = "
                    "\"nccl\" does not move; take \"mpi\"");
}

}  // namespace

void check_generate_deck(const GenerateDeck& deck, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  check_run_and_output(deck.run, deck.output, loaded, diagnostics);
  if (!has(loaded, {"weights"}))
    diagnostics.error({loaded.source, 1, 1, 0}, "missing table [weights]; its key 'path' names the checkpoint");
  check_weights(deck, loaded, diagnostics);
  check_tokenizer(deck.tokenizer, deck.weights, loaded, diagnostics);
  check_cache(deck.generate.kv_cache, deck.generate.cache, "generate", {"generate", "kv_cache"}, loaded,
              diagnostics);
  check_batch_invariance(deck.generate, loaded, diagnostics);
  check_reference(deck, loaded, diagnostics);
  check_adapters(deck, loaded, diagnostics);
  check_stop(deck, loaded, diagnostics);
  check_prompts(deck, loaded, diagnostics);
}

}  // namespace kformer::Impl::schema
