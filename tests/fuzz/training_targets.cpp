// SPDX-License-Identifier: MIT
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>

#include "fuzz/input_folder.hpp"
#include "fuzz/targets.hpp"
#include "io/xxh64.hpp"
#include "kformer/core/error.hpp"
#include "kformer/load/training_checkpoint.hpp"
#include "train/checkpoint_record.hpp"

namespace kformer::Testing {

namespace {

std::string checksum_of(const SafetensorsFile& file) {
  std::uint64_t hash = 0;
  const auto add = [&](const std::string& text) { hash = Impl::xxh64(std::as_bytes(std::span(text)), hash); };
  add(file.metadata().at("step"));
  add(file.metadata().at("metadata"));
  for (const std::string& name : file.names()) {
    const TensorEntry& entry = file.at(name);
    add(name);
    add(fmt::format("{}{}", entry.dtype, entry.shape));
    hash = Impl::xxh64(entry.bytes, hash);
  }
  return fmt::format("{:016x}", hash);
}

// Without the right checksum nothing behind it would be read.
std::string with_checksum(std::string bytes) {
  constexpr std::string_view key = "\"checksum\":\"";
  constexpr std::size_t digits = 16;
  const std::size_t place = bytes.find(key);
  if (place == bytes.npos || bytes.size() - place < key.size() + digits) return bytes;
  const auto file = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "input");
  if (file.metadata().contains("step") && file.metadata().contains("metadata"))
    bytes.replace(place + key.size(), digits, checksum_of(file));
  return bytes;
}

void read_training_checkpoint(std::string_view bytes) {
  static const InputFolder folder("step-00000001.safetensors");
  folder.put(with_checksum(std::string(bytes)));
  const auto found = newest_good_checkpoint(folder.folder());
  if (!found) throw FileError("no good checkpoint");
  drivers::checkpoint_record(found->metadata(), found->columns(), "input");
}

}  // namespace

std::span<const FuzzTarget> training_targets() {
  static constexpr std::array<FuzzTarget, 1> targets{{{"training_checkpoint", read_training_checkpoint}}};
  return targets;
}

}  // namespace kformer::Testing
