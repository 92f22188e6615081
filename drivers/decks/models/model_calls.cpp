// SPDX-License-Identifier: MIT
#include "decks/models/model_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>
#include <variant>

#include "decks/engine/parse.hpp"
#include "decks/engine/writer.hpp"
#include "decks/language_model_schema.hpp"
#include "decks/layer_schema.hpp"
#include "decks/memory/memory_plan_deck.hpp"
#include "decks/models/model_presets.hpp"
#include "io/nearest_name.hpp"
#include "io/schema/toml_text.hpp"
#include "kformer/core/error.hpp"

namespace kformer {

namespace {

namespace fs = std::filesystem;

using Impl::schema::Array;
using Impl::schema::Entry;
using Impl::schema::SourceText;
using Impl::schema::Table;
using Impl::schema::toml_text;
using Impl::schema::Value;

// Of an unlisted model; published ones know theirs.
constexpr std::int64_t usual_context = 4096;

bool exists(const std::string& model) {
  std::error_code ignored;
  return fs::exists(model, ignored);
}

std::string absolute(const std::string& path) { return fs::absolute(path).lexically_normal().string(); }

std::string name_of_path(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  const fs::path last = whole.has_filename() ? whole : whole.parent_path();
  return fs::is_directory(last) ? last.filename().string() : last.stem().string();
}

[[noreturn]] void refuse(const std::string& model, const char* kinds) {
  std::vector<std::string> names;
  for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
  // Names of hubs begin with that of the publisher.
  const std::string last = model.substr(model.rfind('/') + 1);
  throw FileError(fmt::format("'{}' is neither {} nor the name of a published model{}", model, kinds,
                              Impl::suggest_names(last.empty() ? model : last, names)));
}

template <class Model>
std::string model_table(Model model) {
  Impl::schema::Writer writer("model");
  describe(writer, model);
  return "[model]\n" + writer.text();
}

// The table [model] of a layer.
std::string layer_model(const std::string& model) {
  if (const ModelPreset* preset = model_preset(model)) return model_table<ModelTable>(preset->model);
  const fs::path config = fs::path(model) / "config.json";
  if (!exists(config.string())) refuse(model, "a folder with config.json");
  return "[model]\nconfig = " + toml_text(absolute(config.string())) + "\n";
}

// A file of its own for every call, because nobody chose a name.
std::string deck_head(const char* kind, const std::string& name) {
  return fmt::format(
      "schema = 1\nkind = \"{}\"\n\n[run]\nname = {}\n\n[output]\nfile = \"{{name}}-{{date}}.h5\"\n\n", kind,
      toml_text(name));
}

// What overrides set. Those with faults are left out here and refused with the deck.
Table table_of(const std::vector<std::string>& overrides) {
  Table table;
  for (const std::string& text : overrides) {
    Impl::schema::Diagnostics faults;
    const auto source = std::make_shared<SourceText>(SourceText{"--set", {}, text});
    if (auto one = Impl::schema::parse_override(source, faults)) merge(table, std::move(*one));
  }
  return table;
}

// The one value of an axis of [sweep], or the values of its list; nothing if the axis is not set.
std::optional<std::vector<std::string>> axis_of(const Table& overrides, const std::string& axis) {
  const Entry* entry = Impl::schema::find_path(overrides, {"sweep", axis});
  if (entry == nullptr) return {};
  std::vector<std::string> words;
  const auto add = [&](const Value& value) {
    if (const auto* word = std::get_if<std::string>(&value.data)) words.push_back(*word);
  };
  add(entry->value);
  if (const auto* list = std::get_if<Array>(&entry->value.data)) std::ranges::for_each(*list, add);
  return words;
}

// Training cannot change quantised weights, but adapters can learn beside them. Who names purposes and weights decides.
std::string exclusion_of(const std::vector<std::string>& overrides) {
  const Table table = table_of(overrides);
  const auto purposes = axis_of(table, "purpose"), weights = axis_of(table, "weights");
  const bool trains = !purposes || std::ranges::count(*purposes, name_of(PlanPurpose::train)) > 0;
  const bool dense =
      weights && std::ranges::all_of(*weights, [](const auto& w) { return w == name_of(WeightStorage::same); });
  if (!trains || dense || (purposes && weights) || find(table, "adapter") != nullptr) return {};
  std::string formats;
  for (const std::string_view name : names_of<WeightStorage>)
    if (name != name_of(WeightStorage::same))
      formats += (formats.empty() ? "" : ", ") + toml_text(std::string(name));
  return "\n[[sweep.exclude]]\npurpose = \"train\"\nweights = [" + formats + "]\n";
}

std::string short_name(const std::string& model) {
  const ModelPreset* preset = model_preset(model);
  return preset != nullptr ? preset->name : name_of_path(model);
}

}  // namespace

std::vector<std::string> layer_model_overrides(const std::string& model) {
  std::istringstream lines(layer_model(model));
  std::vector<std::string> overrides;
  std::string table;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line.front() == '[')
      table = line.substr(1, line.size() - 2) + ".";
    else
      overrides.push_back(table + line);
  }
  return overrides;
}

std::string layer_deck_of(const std::string& model) {
  return deck_head("layer_sweep", short_name(model)) + layer_model(model) +
         "\n[timing]\nrepeats = 5\nmax_time_s = 5.0\n\n"
         "[sweep]\nexecution_space = \"default\"\nimpl = [\"standard\", \"flash\"]\n"
         "dtype = [\"f32\", \"bf16\"]\nseq_len = [512, 1024, 2048]\n\n[check]\nmax_seq_len = 512\n";
}

std::string memory_deck_of(const std::string& model, const std::vector<std::string>& overrides) {
  const ModelPreset* preset = model_preset(model);
  if (preset == nullptr && !exists(model)) refuse(model, "a folder or file of a checkpoint");
  const std::string source = preset != nullptr ? model_table<LanguageModelTable>(preset->model)
                                               : "[weights]\npath = " + toml_text(absolute(model)) + "\n";
  const std::int64_t context =
      preset != nullptr ? std::min(preset->model.max_position_embeddings, usual_context) : usual_context;
  return deck_head("memory_plan", "memory-" + short_name(model)) + source +
         fmt::format(
             "\n[sweep]\nexecution_space = \"default\"\npurpose = [\"generate\", \"train\"]\n"
             "dtype = \"bf16\"\nweights = [\"same\", \"q8_0\", \"q4_0\"]\ncontext = {}\n"
             "recompute = [\"pointwise\", \"layer\", \"nested\", \"auto\"]\n",
             context) +
         exclusion_of(overrides);
}

std::string generate_deck_of(const fs::path& checkpoint, const std::vector<std::string>& prompts, bool chat) {
  std::string text = deck_head("generate", name_of_path(checkpoint)) +
                     "[weights]\npath = " + toml_text(absolute(checkpoint.string())) +
                     "\n\n[generate]\nmax_new_tokens = 256\n";
  for (const std::string& prompt : prompts)
    text += fmt::format("\n[[prompt]]\n{} = {}\n", chat ? "chat" : "text", toml_text(prompt));
  return text;
}

fs::path checkpoint_of(const std::string& model) {
  if (exists(model)) return model;
  if (model_preset(model) != nullptr)
    throw FileError(
        fmt::format("'{}' is a published model, but there is no such folder or file here; "
                    "scripts/get_model gets some, and docs/checkpoints.md says where others are",
                    model));
  throw FileError(fmt::format("there is no folder or file '{}' with weights", model));
}

}  // namespace kformer
