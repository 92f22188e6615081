// SPDX-License-Identifier: MIT
#include "text/base/file.hpp"

#include "io/schema/read_file.hpp"
#include "io/utf8.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl::tokenizers {

void refuse(const std::string& file, const std::string& reason) {
  throw FileError("'" + file + "' is not a valid tokenizer: " + reason);
}

void unsupported(const std::string& file, const std::string& what, const std::string& why) {
  throw NotSupported("'" + file + "': " + what + " is not supported: " + why);
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t most = 60;
  std::string shown = repair_utf8(text.substr(0, most));
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  return "'" + shown + (text.size() > most ? "...'" : "'");
}

std::string read_whole(const std::filesystem::path& path) {
  std::string text = schema::read_file(path, largest_file + 1);
  if (text.size() > largest_file)
    refuse(path.string(), "it has more than " + std::to_string(largest_file) + " bytes");
  return text;
}

}  // namespace kformer::Impl::tokenizers
