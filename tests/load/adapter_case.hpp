// SPDX-License-Identifier: MIT
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/scratch_directory.hpp"
#include "kformer/core/error.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "support/errors.hpp"
#include "support/source_files.hpp"

namespace kformer::Testing {

namespace fs = std::filesystem;
using nlohmann::json;

// By scripts/make_adapter_case; `dora_case` has magnitudes, and layers of `layers_case` have other ranks, or no adapter.
inline fs::path adapter_case() { return test_data("adapter_case"); }

inline Checkpoint base() {
  Checkpoint checkpoint = Checkpoint::open(tiny_llama());
  checkpoint.check_against(checkpoint.model());
  return checkpoint;
}

/// A copy of the adapter, to be damaged.
struct AdapterFolder {
  ScratchDirectory directory;
  fs::path folder = directory / "adapter";
  AdapterFolder() { fs::copy(adapter_case(), folder); }

  json config() const { return json::parse(std::ifstream(folder / "adapter_config.json")); }
  void write_config(const json& config) const { std::ofstream(folder / "adapter_config.json") << config; }
  /// With a key of the configuration changed.
  void check_refused(const char* key, const json& value, const std::string& sentence) const {
    json changed = config();
    changed[key] = value;
    write_config(changed);
    check_error<FileError>([&] { AdapterCheckpoint::open(folder); },
                           "'" + (folder / "adapter_config.json").string() + "': " + sentence);
    fs::copy(adapter_case(), folder, fs::copy_options::overwrite_existing | fs::copy_options::recursive);
  }
};

}  // namespace kformer::Testing
