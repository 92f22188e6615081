// SPDX-License-Identifier: MIT
#include "text/gguf/splits.hpp"

#include <algorithm>
#include <string_view>

#include "text/base/file.hpp"

namespace kformer::Impl::tokenizers {
namespace {

constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";

/// Names of ggml that share their patterns, which are those of the published tokenizers.
struct Family {
  std::vector<std::string_view> names;
  std::vector<std::string_view> patterns;  ///< one after another, each splitting what the one before left
  bool whole_words = false;
  bool adds_bos = false;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      {{"llama-bpe", "llama3", "llama-v3", "falcon3"}, {llama3_pattern}, true, true},
      {{"dbrx", "smaug-bpe"}, {llama3_pattern}},
      {{"qwen2", "deepseek-r1-qwen", "megrez", "stablelm2"}, {qwen2_pattern}},
      {{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
       {R"(\p{N})", gpt2_pattern}},
      {{"gpt-2", "phi-2", "mpt", "olmo", "jais"}, {gpt2_pattern}},
      {{"default", ""}, {R"([\p{P}\$\+<=>\^~\|]+)", gpt2_pattern, R"(\p{N}+)", "[0-9][0-9][0-9]"}}};
  return all;
}

std::string known_names() {
  std::string names;
  for (const Family& family : families())
    for (const std::string_view name : family.names)
      if (!name.empty()) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

}  // namespace

GgufSplit gguf_split(const std::string& pre, const std::string& file) {
  for (const Family& family : families()) {
    if (std::find(family.names.begin(), family.names.end(), pre) == family.names.end()) continue;
    GgufSplit split{{}, family.whole_words, family.adds_bos};
    for (const std::string_view pattern : family.patterns)
      split.steps.push_back(split_at(find_pattern(Pattern(pattern, file)), MatchBehaviour::isolated, false));
    split.steps.push_back(to_byte_letters());
    return split;
  }
  unsupported(file, "tokenizer.ggml.pre", "it is " + in_quotes(pre) + "; supported: " + known_names());
}

}  // namespace kformer::Impl::tokenizers
