// SPDX-License-Identifier: MIT
#include "text/base/file.hpp"
#include "kformer/io/gguf.hpp"
#include "kformer/text/gguf_vocabulary.hpp"
#include "text/tokenizer/formats.hpp"

namespace kformer {

GgufVocabulary read_gguf_vocabulary(const GgufFile& file) {
  const std::string prefix = "tokenizer.ggml.";
  GgufVocabulary vocabulary;
  const auto model = file.find_string(prefix + "model");
  if (!model) Impl::tokenizers::refuse(file.source(), "it has no tokenizer.ggml.model");
  vocabulary.model = *model;
  vocabulary.pre = file.find_string(prefix + "pre").value_or("");
  vocabulary.tokens = file.find_strings(prefix + "tokens").value_or(std::vector<std::string>());
  if (const auto scores = file.find_numbers(prefix + "scores"))
    for (const double score : *scores) vocabulary.scores.push_back(static_cast<float>(score));
  vocabulary.types = file.find_integers(prefix + "token_type").value_or(std::vector<std::int64_t>());
  vocabulary.merges = file.find_strings(prefix + "merges").value_or(std::vector<std::string>());
  vocabulary.bos = file.find_integer(prefix + "bos_token_id");
  vocabulary.eos = file.find_integer(prefix + "eos_token_id");
  vocabulary.eot = file.find_integer(prefix + "eot_token_id");
  vocabulary.unk = file.find_integer(prefix + "unknown_token_id");
  vocabulary.add_bos = file.find_bool(prefix + "add_bos_token");
  vocabulary.add_space_prefix = file.find_bool(prefix + "add_space_prefix");
  vocabulary.chat_template = file.find_string("tokenizer.chat_template").value_or("");
  return vocabulary;
}

namespace Impl::tokenizers {

std::unique_ptr<const Tokenizer> open_gguf(const std::filesystem::path& path) {
  const GgufFile file = GgufFile::open(path);
  return make_tokenizer(read_gguf_vocabulary(file), file.source());
}

}  // namespace Impl::tokenizers
}  // namespace kformer
