// SPDX-License-Identifier: MIT
#include "io/deck/model_config.hpp"

#include <climits>

#include "io/deck/config_json.hpp"
#include "io/deck/layer_schema.hpp"
#include "io/deck/limits.hpp"
#include "io/deck/names_in.hpp"
#include "io/deck/read_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::decks {

// Published files carry many keys that no layer needs.
Table read_layer_config(const std::filesystem::path& path, const Place& named_at, Diagnostics& diagnostics) {
  auto source = std::make_shared<SourceText>(SourceText{path.string(), path.parent_path(), {}, INT_MAX});
  try {
    source->text = read_file(path, max_deck_bytes);
  } catch (const FileError& error) {
    diagnostics.error(named_at, error.what());
    return {};
  }
  auto config = parse_config(source, diagnostics);
  if (!config) return {};
  translate_config(*config);
  keep_known(*config, names_in<ModelTable>());
  config->erase("config");
  return to_table(*config, {source});
}

}  // namespace kformer::Impl::decks
