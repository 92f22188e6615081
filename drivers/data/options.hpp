// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "kformer/core/types/tokenizer_format.hpp"
#include "kformer/data/token_dataset.hpp"

namespace kformer::drivers {

/// The command line of kformer-data.
struct DataCommand {
  bool inspect = false;                      ///< else prepare
  DataOptions data;                          ///< files, format, packing, cache
  std::optional<TokenizerFormat> tokenizer;  ///< none: no tokenizer is given
  std::filesystem::path tokenizer_path;      ///< of the tokenizer
  std::optional<ChatStyle> chat_style;       ///< none: as the tokenizer says
  std::vector<std::int64_t> sequences;       ///< inspect: those to show
};

/// Takes the command line apart and answers --help and --version.
/// \param exit_code set if nothing is left to do
/// \returns what to do, or none
std::optional<DataCommand> data_command(int argc, char** argv, int& exit_code);

}  // namespace kformer::drivers
