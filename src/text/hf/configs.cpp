// SPDX-License-Identifier: MIT
#include "text/hf/configs.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "text/base/file.hpp"
#include "text/hf/node.hpp"

namespace kformer::Impl::tokenizers {
namespace {

/// A text, or an object with "content".
std::optional<std::string> read_token(const Node& config, const std::string& key) {
  const auto token = config.find(key);
  if (!token) return {};
  return token->json().is_object() ? token->at("content").text() : token->text();
}

/// A text, or a list of named texts, of which "default" is used.
std::string read_chat_template(const Node& config) {
  const auto chat = config.find("chat_template");
  if (!chat) return {};
  if (!chat->json().is_array()) return chat->text();
  for (const Node& named : chat->elements())
    if (named.at("name").text() == "default") return named.at("template").text();
  return {};
}

/// The classes that write the template of tokenizer.json anew when they open it.
bool replaces_template(const std::string& tokenizer_class) {
  constexpr std::array<std::string_view, 4> families{"Llama", "CodeLlama", "Gemma", "Cohere"};
  return std::ranges::any_of(families, [&](auto family) { return tokenizer_class.starts_with(family); });
}

std::vector<std::int64_t> read_ids(const Node& config, const std::string& key) {
  const auto ids = config.find(key);
  if (!ids) return {};
  if (!ids->json().is_array()) return {ids->integer()};
  std::vector<std::int64_t> all;
  for (const Node& id : ids->elements()) all.push_back(id.integer());
  return all;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

/// `f(root)` of a JSON file, where it exists.
template <class F>
void with_json(const std::filesystem::path& path, F f) {
  if (!is_there(path)) return;
  const nlohmann::json json = Node::parse(read_whole(path), path.string());
  f(Node(json, path.string()));
}

}  // namespace

TokenizerConfigs read_configs(const std::filesystem::path& folder) {
  TokenizerConfigs configs;
  with_json(folder / "tokenizer_config.json", [&](const Node& config) {
    configs.bos = read_token(config, "bos_token");
    configs.eos = read_token(config, "eos_token");
    if (const auto adds = config.find("add_bos_token")) configs.adds_bos = adds->boolean();
    configs.replaces_template = replaces_template(config.text_of("tokenizer_class", ""));
    configs.chat_template = read_chat_template(config);
  });
  with_json(folder / "generation_config.json",
            [&](const Node& config) { configs.eos_ids = read_ids(config, "eos_token_id"); });
  if (const auto jinja = folder / "chat_template.jinja"; is_there(jinja))
    configs.chat_template = read_whole(jinja);
  return configs;
}

}  // namespace kformer::Impl::tokenizers
