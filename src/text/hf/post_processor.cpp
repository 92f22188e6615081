// SPDX-License-Identifier: MIT
#include <algorithm>

#include "text/base/file.hpp"
#include "text/hf/configs.hpp"
#include "text/hf/parts.hpp"

namespace kformer::Impl::tokenizers {
namespace {

bool is_special_token(const Node& part) { return part.find("SpecialToken").has_value(); }

void read_template(const Node& processor, Pipeline& parts) {
  const std::vector<Node> single = processor.at("single").elements();
  if (single.size() > 2 || single.empty() || is_special_token(single.back()))
    processor.unsupported("Kformer adds only one token, before the text");
  if (single.size() == 1) return;
  if (!is_special_token(single[0])) single[0].unsupported("a template must contain the text exactly once");
  const std::string name = single[0].at("SpecialToken").at("id").text();
  const std::vector<Node> ids = processor.at("special_tokens").at(name).at("ids").elements();
  if (ids.size() != 1) processor.unsupported("Kformer adds only one token before the text");
  const std::int64_t id = ids[0].integer();
  if (!parts.pieces->has(id))
    refuse(processor.file(), ids[0].name() + " is " + std::to_string(id) + ", which is not a token id");
  parts.bos = static_cast<std::int32_t>(id);
  parts.adds_bos = true;
}

/// \returns whether there is a template
bool read_processor(const Node& processor, Pipeline& parts) {
  const std::string type = processor.at("type").text();
  bool has_template = type == "TemplateProcessing";
  if (type == "Sequence") {
    for (const Node& member : processor.at("processors").elements())
      has_template = read_processor(member, parts) || has_template;
  } else if (has_template) {
    read_template(processor, parts);
  } else if (type != "ByteLevel") {  // which concerns offsets only
    processor.unsupported("it is '" + type + "'; supported: TemplateProcessing, ByteLevel and Sequence");
  }
  return has_template;
}

void add_eos(Pipeline& parts, std::int64_t id) {
  if (!parts.pieces->has(id)) return;
  const auto token = static_cast<std::int32_t>(id);
  if (std::find(parts.eos.begin(), parts.eos.end(), token) == parts.eos.end()) parts.eos.push_back(token);
}

}  // namespace

bool read_post_processor(const Node& root, Pipeline& parts) {
  const auto processor = root.find("post_processor");
  return processor && read_processor(*processor, parts);
}

void take_configs(const TokenizerConfigs& configs, bool has_template, Pipeline& parts) {
  if (!parts.bos && configs.bos) parts.bos = parts.pieces->find(*configs.bos);
  if (configs.adds_bos && (!has_template || configs.replaces_template))
    parts.adds_bos = parts.bos && *configs.adds_bos;
  if (configs.eos)
    if (const auto id = parts.pieces->find(*configs.eos)) add_eos(parts, *id);
  for (const std::int64_t id : configs.eos_ids) add_eos(parts, id);
  parts.chat_template = configs.chat_template;
}

}  // namespace kformer::Impl::tokenizers
