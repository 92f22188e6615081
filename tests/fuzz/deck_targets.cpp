// SPDX-License-Identifier: MIT
#include <array>
#include <sstream>
#include <string>

#include "decks/attention_deck.hpp"
#include "decks/generate_deck.hpp"
#include "decks/layer_deck.hpp"
#include "decks/memory/memory_plan_deck.hpp"
#include "decks/scaling/scaling_deck.hpp"
#include "decks/train/train_deck.hpp"
#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"

namespace kformer::Testing {

namespace {

template <auto load_deck>
void read_deck(std::string_view bytes) {
  static InputFolder folder("deck.toml");
  load_deck({folder.put(bytes), {}});
}

// A published configuration that a deck names.
void read_layer_config(std::string_view bytes) {
  static const InputFolder folder("config.json", {{"deck.toml", R"(schema = 1
kind = "layer_sweep"
model.config = "config.json"
sweep.seq_len = 4
)"}});
  folder.put(bytes);
  load_layer_deck({folder.folder() / "deck.toml", {}});
}

// What follows --set on a command line, one override in a line.
void read_overrides(std::string_view bytes) {
  static const InputFolder folder("unused", {{"deck.toml", "schema = 1\nkind = \"layer_sweep\"\n"}});
  DeckSource source{folder.folder() / "deck.toml", {}};
  std::istringstream lines{std::string(bytes)};
  for (std::string line; std::getline(lines, line);) source.overrides.push_back(line);
  load_layer_deck(source);
}

}  // namespace

std::span<const FuzzTarget> deck_targets() {
  static constexpr std::array<FuzzTarget, 8> targets{{{"layer_deck", read_deck<load_layer_deck>},
                                                      {"layer_config", read_layer_config},
                                                      {"attention_deck", read_deck<load_attention_deck>},
                                                      {"generate_deck", read_deck<load_generate_deck>},
                                                      {"memory_deck", read_deck<load_memory_plan_deck>},
                                                      {"train_deck", read_deck<load_train_deck>},
                                                      {"scaling_deck", read_deck<load_scaling_deck>},
                                                      {"overrides", read_overrides}}};
  return targets;
}

}  // namespace kformer::Testing
