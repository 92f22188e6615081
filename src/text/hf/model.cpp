// SPDX-License-Identifier: MIT
#include <utility>

#include "text/base/file.hpp"
#include "text/hf/parts.hpp"
#include "text/tokenizer/bpe.hpp"

namespace kformer::Impl::tokenizers {
namespace {

void refuse_given(const Node& model, const std::string& key) {
  const auto member = model.find(key);
  if (!member) return;
  const nlohmann::json& json = member->json();
  const bool harmless =
      (json.is_string() && json.get<std::string>().empty()) || (json.is_number() && json == 0);
  if (!harmless) member->unsupported("tokenizers of large language models have none");
}

void read_vocabulary(const Node& vocabulary, PieceTable& pieces) {
  vocabulary.require_object();
  pieces.expect(vocabulary.json().size());
  for (const auto& [piece, id] : vocabulary.json().items()) {
    const bool huge = id.is_number_unsigned() && id.get<std::uint64_t>() > PieceTable::most_ids;
    if (!id.is_number_integer() || huge)
      refuse(vocabulary.file(), "the id of token " + in_quotes(piece) + " is not an integer in [0, " +
                                    std::to_string(PieceTable::most_ids) + ")");
    pieces.add(piece, id.get<std::int64_t>(), vocabulary.file());
  }
}

/// Both forms: "left right", and ["left", "right"], which lets tokens have spaces.
std::pair<std::string, std::string> read_merge(const nlohmann::json& merge, const std::string& file,
                                               std::size_t index) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  const std::string text = merge.is_string() ? merge.get<std::string>() : std::string();
  const auto space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
    refuse(file, "model.merges[" + std::to_string(index) + "] is not a pair of tokens");
  return {text.substr(0, space), text.substr(space + 1)};
}

/// Files that an early version wrote name no type; their vocabulary is an object and they have merges.
void require_bpe(const Node& model) {
  const auto type = model.find("type");
  if (type && type->text() != "BPE") type->unsupported("it is '" + type->text() + "'; supported: BPE");
  if (!type && !model.find("merges")) model.unsupported("it has no merges; supported: BPE");
}

}  // namespace

void read_bpe_model(const Node& root, Pipeline& parts) {
  const Node model = root.at("model").require_object();
  require_bpe(model);
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
    refuse_given(model, key);
  read_vocabulary(model.at("vocab"), *parts.pieces);
  Bpe::Options options;
  if (const auto unknown = model.find("unk_token")) {
    options.unknown = parts.pieces->find(unknown->text());
    if (!options.unknown)
      refuse(root.file(), "model.unk_token " + in_quotes(unknown->text()) + " is not a token");
  }
  options.fuse_unknown = model.boolean_of("fuse_unk", false);
  options.byte_fallback = model.boolean_of("byte_fallback", false);
  options.whole_words = model.boolean_of("ignore_merges", false);
  Bpe bpe(*parts.pieces, options);
  const Node merges = model.at("merges");
  if (!merges.json().is_array()) merges.expected("an array");
  std::size_t index = 0;
  for (const auto& merge : merges.json()) {
    const auto [left, right] = read_merge(merge, root.file(), index++);
    bpe.add_merge(left, right, EqualMerges::last_counts, root.file());
  }
  parts.merge = [bpe = std::move(bpe)](std::string_view word, std::vector<std::int32_t>& ids) {
    bpe.encode(word, ids);
  };
}

void read_added_tokens(const Node& root, Pipeline& parts) {
  const auto added = root.find("added_tokens");
  if (!added) return;
  parts.pieces->expect(added->json().size());
  for (const Node& node : added->elements()) {
    AddedToken token;
    token.text = node.at("content").text();
    const std::int64_t id = node.at("id").integer();
    // The vocabulary may have the token already, with another id; the text is one token either way.
    const auto known = parts.pieces->find(token.text);
    if (known && *known != id)
      refuse(root.file(), node.name() + ": " + in_quotes(token.text) + " has id " + std::to_string(id) +
                              " here, but " + std::to_string(*known) + " in the vocabulary");
    if (!known) parts.pieces->add(token.text, id, root.file());
    token.id = static_cast<std::int32_t>(id);
    token.special = node.boolean_of("special", false);
    token.takes_left = node.boolean_of("lstrip", false);
    token.takes_right = node.boolean_of("rstrip", false);
    token.single_word = node.boolean_of("single_word", false);
    Pipeline::mark(token.special ? parts.special : parts.literal, token.id);
    // Special tokens are found in the text as it was written, unless they say otherwise.
    const bool normalised = node.boolean_of("normalized", !token.special);
    // Those that are found after it are found as it spells them.
    if (normalised) token.text = parts.normalised(token.text);
    (normalised ? parts.added_normalised : parts.added_raw).add(std::move(token), root.file());
  }
}

}  // namespace kformer::Impl::tokenizers
