// SPDX-License-Identifier: MIT
#include "io/checkpoint/shards.hpp"

#include <nlohmann/json.hpp>
#include <set>

#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"

namespace kformer::Impl {
namespace {

using nlohmann::json;

constexpr std::size_t largest_index = std::size_t{64} << 20;
constexpr int deepest_index = 8;

/// The depth of the keys of the weight map.
constexpr int depth_of_names = 2;

/// Whether a name can only be that of a file in the same folder.
bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string("/\\\0", 3)) == name.npos;
}

json parse_index(const std::filesystem::path& index) {
  const auto refuse = [&](const std::string& reason) {
    throw FileError("'" + index.string() + "' is not a safetensors index: " + reason);
  };
  const MappedFile file = map_file(index);
  if (file.size > largest_index)
    refuse("it has " + std::to_string(file.size) + " bytes, too many for an index");
  // A tree keeps only the last of two equal keys, so they are noticed before.
  std::set<std::string> names;
  // The parser looks through all of an object after each list and object in it.
  constexpr int most_parts = 1000;
  int parts = 0;
  const auto watch = [&](int depth, json::parse_event_t event, const json& node) {
    if (depth > deepest_index) refuse("it is nested too deeply");
    if ((event == json::parse_event_t::object_end || event == json::parse_event_t::array_end) &&
        ++parts > most_parts)
      refuse("it has more than " + std::to_string(most_parts) + " objects and lists");
    if (event == json::parse_event_t::key && depth == depth_of_names &&
        !names.insert(node.get<std::string>()).second)
      refuse("the key '" + node.get<std::string>() + "' occurs twice");
    return true;
  };
  const auto* text = reinterpret_cast<const char*>(file.start.get());
  json root;
  try {
    root = json::parse(text, text + file.size, watch);
  } catch (const json::exception&) {
    refuse("it is not JSON");
  }
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    refuse("it has no object 'weight_map'");
  return root;
}

}  // namespace

std::map<std::string, std::string> read_shard_index(const std::filesystem::path& index) {
  const json root = parse_index(index);
  std::map<std::string, std::string> shards;
  for (const auto& [tensor, shard] : root["weight_map"].items()) {
    if (!shard.is_string() || !is_plain_file_name(shard.get<std::string>()))
      throw FileError("'" + index.string() + "': the shard of tensor '" + tensor +
                      "' must be the name of a file in the same folder, got " +
                      shard.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200));
    shards.emplace(tensor, shard.get<std::string>());
  }
  if (shards.empty()) throw FileError("'" + index.string() + "': 'weight_map' names no tensor");
  return shards;
}

}  // namespace kformer::Impl
