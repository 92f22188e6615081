// SPDX-License-Identifier: MIT
#include "decks/models/model_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <system_error>

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

using Impl::schema::toml_text;

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

// The value of the last override of a key; empty without one.
std::string override_of(const std::vector<std::string>& overrides, const std::string& key) {
  std::string value;
  for (const std::string& text : overrides)
    if (text.starts_with(key + "=")) value = text.substr(key.size() + 1);
  return value;
}

// Training cannot change quantised weights, but adapters can learn beside them. Who names purposes and weights decides.
std::string exclusion_of(const std::vector<std::string>& overrides) {
  const std::string purpose = override_of(overrides, "sweep.purpose");
  const std::string weights = override_of(overrides, "sweep.weights");
  const auto adapts = [](const std::string& text) { return text.starts_with("adapter"); };
  const bool trains = purpose.empty() || purpose.find("train") != std::string::npos;
  const bool dense = weights == "same" || weights == "\"same\"";
  if (!trains || dense || (!purpose.empty() && !weights.empty()) || std::ranges::any_of(overrides, adapts))
    return {};
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
