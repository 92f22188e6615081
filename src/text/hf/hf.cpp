// SPDX-License-Identifier: MIT
#include "io/content_hash.hpp"
#include "text/base/file.hpp"
#include "text/hf/parts.hpp"
#include "text/tokenizer/formats.hpp"

namespace kformer::Impl::tokenizers {

std::unique_ptr<const Tokenizer> open_hf(const std::filesystem::path& path) {
  std::error_code ignored;
  const auto file = std::filesystem::is_directory(path, ignored) ? path / "tokenizer.json" : path;
  const std::string contents = read_whole(file);
  const nlohmann::json json = Node::parse(contents, file.string());
  const Node root(json, file.string());
  Pipeline parts;
  parts.fingerprint = hash_of(contents).text();
  read_bpe_model(root, parts);
  read_normalizer(root, parts);
  read_added_tokens(root, parts);
  read_pre_tokenizer(root, parts);
  read_decoder(root, parts);
  const bool has_template = read_post_processor(root, parts);
  take_configs(read_configs(file.parent_path()), has_template, parts);
  return make_pipeline_tokenizer(std::move(parts));
}

}  // namespace kformer::Impl::tokenizers
