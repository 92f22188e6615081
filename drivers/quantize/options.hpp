// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/report.hpp"
#include "kformer/core/stored_type.hpp"

namespace kformer::drivers {

/// The command line of kformer-quantize.
struct QuantizeOptions {
  std::filesystem::path input;               ///< a checkpoint
  std::filesystem::path output;              ///< folder of the packed checkpoint; empty: none is written
  std::optional<StoredType> format;          ///< of the matrices of the layers; none: as stored
  std::optional<StoredType> embedding;       ///< of the token embedding and the output matrix; none: as stored
  std::filesystem::path adapter;             ///< to be merged into the weights; empty: none
  std::filesystem::path adapter_gguf;        ///< the adapter for llama.cpp; empty: it is not written
  std::int64_t adapter_tokens = 64;          ///< on which the merged model is compared; 0: on none
  std::string space;                         ///< execution space
  std::int64_t threads = 0;                  ///< host threads; 0: Kokkos default
  ReportFormat table = ReportFormat::table;  ///< how the tensors are printed
  std::optional<std::filesystem::path> report;  ///< result file
  bool overwrite = false;                       ///< replace what is at `output`, `report` and `adapter_gguf`
  bool dry_run = false;                         ///< print what would be done, and stop
  std::vector<std::string> kokkos;              ///< arguments for Kokkos::initialize
  std::vector<std::string> all;                 ///< the whole command line
};

/// Takes the command line apart and answers --help and --version. Does not start Kokkos.
/// \param exit_code set if nothing is left to do
/// \returns the options, or none
std::optional<QuantizeOptions> quantize_options(int argc, char** argv, int& exit_code);

}  // namespace kformer::drivers
