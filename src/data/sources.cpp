// SPDX-License-Identifier: MIT
#include "data/sources.hpp"

#include <fmt/format.h>

#include "data/documents.hpp"
#include "data/token_cache.hpp"
#include "data/token_files.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"
#include "kformer/version.hpp"

namespace kformer::Impl::data {
namespace {

/// Where the same line means other tokens than before, this must be another number.
constexpr int chat_lines = 2;

/// How messages are written, if anyone says so: texts need no template.
std::optional<ChatTemplate> chat_of(const DataOptions& options, const Tokenizer& tokenizer) {
  if (options.chat) return options.chat;
  try {
    return chat_template_of(tokenizer);
  } catch (const NotSupported&) {
    return {};
  }
}

std::optional<std::int32_t> bos_of(const DataOptions& options, const Tokenizer& tokenizer) {
  return tokenizer.bos() ? tokenizer.bos() : options.bos;
}

/// Reads the files of one data set, one after another.
class Reader {
 public:
  Reader(const DataOptions& options, const Tokenizer* tokenizer)
      : m_options(options), m_tokenizer(tokenizer), m_cache(cache_folder()) {
    if (options.format == DataFormat::chat) m_chat = chat_of(options, *tokenizer);
  }

  TokenCache::Found read(const std::filesystem::path& path) const {
    if (m_options.format == DataFormat::tokens) return open_token_file(path, m_cache);
    const MappedFile file = map_file(path);
    const std::string_view contents(reinterpret_cast<const char*>(file.start.get()), file.size);
    const auto make = [&] { return documents(contents, path.string()); };
    // Without a fingerprint, the tokenizer of cached tokens would be unknown.
    const TokenCache none{{}};
    return (m_tokenizer->fingerprint().empty() ? none : m_cache).get(key_of(contents), path.string(), make);
  }

 private:
  std::filesystem::path cache_folder() const { return m_options.cache.value_or(default_cache_folder()); }

  TokenDocuments documents(std::string_view contents, const std::string& source) const {
    if (m_options.format == DataFormat::text) return text_document(contents, *m_tokenizer, bos());
    PromptEncoder encoder(*m_tokenizer, {m_chat, m_options.bos, m_options.add_bos, m_options.vocab_size});
    return chat_documents(contents, encoder, source);
  }

  std::optional<std::int32_t> bos() const { return bos_of(m_options, *m_tokenizer); }
  bool adds_bos() const { return m_options.add_bos.value_or(m_tokenizer->adds_bos()); }

  /// Everything that decides which tokens are made.
  ContentHash key_of(std::string_view contents) const {
    std::string all = fmt::format("kformer {}.{}.{}\n{}\n{}\n{}\n{}\n", version.major_number,
                                  version.minor_number, version.patch_number, name_of(m_options.format),
                                  hash_of(contents).text(), m_tokenizer->fingerprint(), bos().value_or(-1));
    if (m_options.format == DataFormat::chat) all += fmt::format("lines {}\n{}\n", chat_lines, adds_bos());
    if (m_chat)
      all += fmt::format("{}\n{}\n{}\n{}\n", name_of(m_chat->style), m_chat->default_system, m_chat->eos,
                         m_chat->bos);
    return hash_of(all);
  }

  const DataOptions& m_options;
  const Tokenizer* m_tokenizer;
  TokenCache m_cache;
  std::optional<ChatTemplate> m_chat;
};

}  // namespace

TokenStore read_documents(const DataOptions& options, const Tokenizer* tokenizer, DataReport& report) {
  TokenStore store;
  const auto add = [&](TokenShard shard) {
    check_ids(shard, options.vocab_size);
    store.add(std::move(shard));
  };
  if (options.format == DataFormat::synthetic) {
    add(shard_in_memory(synthetic_documents(options.synthetic, *tokenizer, bos_of(options, *tokenizer)),
                        "synthetic samples"));
    return store;
  }
  const Reader reader(options, tokenizer);
  for (const std::filesystem::path& path : options.files) {
    TokenCache::Found found = reader.read(path);
    if (found.cached) ++report.cached_files;
    if (!found.not_stored.empty())
      report.notes.push_back(
          fmt::format("the tokens of '{}' are not in the cache: {}", path.string(), found.not_stored));
    if (found.shard.malformed > 0)
      report.notes.push_back(
          fmt::format("'{}' has {} invalid UTF-8 sequences", path.string(), found.shard.malformed));
    add(std::move(found.shard));
  }
  return store;
}

}  // namespace kformer::Impl::data
