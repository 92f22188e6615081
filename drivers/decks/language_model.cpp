// SPDX-License-Identifier: MIT
#include "decks/language_model.hpp"

#include <fmt/format.h>

#include <initializer_list>

#include "decks/model_config.hpp"
#include "decks/sweep/sweep_checks.hpp"
#include "io/config/model_text.hpp"

namespace kformer::Impl::schema {
namespace {

bool all_known(const LanguageModelTable& model, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  bool complete = true;
  const std::initializer_list<std::pair<const char*, std::int64_t>> needed{
      {"hidden_size", model.hidden_size},
      {"num_attention_heads", model.num_attention_heads},
      {"intermediate_size", model.intermediate_size},
      {"num_hidden_layers", model.num_hidden_layers},
      {"vocab_size", model.vocab_size},
      {"max_position_embeddings", model.max_position_embeddings}};
  for (const auto& [key, value] : needed) {
    if (value != 0) continue;
    complete = false;
    // An invalid value already has its error.
    if (!has(loaded, {"model", key}))
      diagnostics.error(place_of(loaded, {"model", key}),
                        fmt::format("missing key '{}' in [model]; set it, or set 'config'", key));
  }
  return complete;
}

}  // namespace

void check_language_model(LanguageModelTable& model, const LoadedDeck& loaded, Diagnostics& diagnostics) {
  if (!all_known(model, loaded, diagnostics)) return;
  for (const auto& fault : complete_language_model(model))
    diagnostics.error(place_of(loaded, {"model", fault.key}),
                      fmt::format("'model.{}' {}", fault.key, fault.message));
}

std::optional<LanguageModelTable> configured_language_model(const LoadedDeck& loaded,
                                                            Diagnostics& diagnostics) {
  const auto config = model_config_of(loaded.root);
  if (!config) return {};
  try {
    return Impl::read_model_keys(config->path);
  } catch (const FileError& error) {
    diagnostics.error(config->named_at, error.what());
    return {};
  }
}

}  // namespace kformer::Impl::schema
