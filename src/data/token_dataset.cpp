// SPDX-License-Identifier: MIT
#include "kformer/data/token_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <limits>
#include <utility>

#include "data/sequence_layout.hpp"
#include "data/sources.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"
#include "kformer/data/best_fit.hpp"

namespace kformer {

using Impl::data::Piece;
using Impl::data::SequenceLayout;
using Impl::data::TokenStore;

namespace {

std::string first_file(const DataOptions& options) {
  if (options.format == DataFormat::synthetic) return "the synthetic samples";
  const std::string first = "'" + options.files.front().string() + "'";
  return options.files.size() == 1 ? first : fmt::format("{} and {} more", first, options.files.size() - 1);
}

void check_options(const DataOptions& options) {
  const auto require = [](bool good, const std::string& expected) {
    if (!good) throw Error("kformer::TokenDataset::open: " + expected);
  };
  const bool synthetic = options.format == DataFormat::synthetic;
  require(options.seq_len >= 1 && options.seq_len < std::numeric_limits<std::int32_t>::max(),
          fmt::format("seq_len is {}; expected at least 1", options.seq_len));
  require(synthetic || !options.files.empty(),
          fmt::format("there are no files of {}", name_of(options.format)));
  require(!synthetic || options.files.empty(), "synthetic data has no files");
  require(!synthetic || options.synthetic.samples >= 1,
          fmt::format("samples is {}; expected at least 1", options.synthetic.samples));
}

/// How many documents there are of what length.
void count_documents(std::span<const std::int64_t> offsets, DataReport& report) {
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    const std::int64_t length = offsets[i] - offsets[i - 1];
    const auto bucket = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
    if (report.lengths.size() <= bucket) report.lengths.resize(bucket + 1);
    ++report.lengths[bucket];
    report.longest_document = std::max(report.longest_document, length);
  }
  report.documents = std::ssize(offsets) - 1;
  report.tokens = offsets.back();
}

void count_stream(const TokenStore& store, std::int64_t seq_len, DataReport& report) {
  report.sequences = std::max<std::int64_t>(store.size() - 1, 0) / seq_len;
  if (report.sequences == 0) return;
  report.dropped_tokens = store.size() - 1 - report.sequences * seq_len;
  report.target_tokens = store.learnt(1, report.sequences * seq_len + 1);
  report.fill = 1;
}

void count_packed(const TokenStore& store, const SequenceLayout& layout, std::int64_t seq_len,
                  DataReport& report) {
  report.sequences = layout.size();
  for (const Piece& piece : layout.pieces)
    report.target_tokens += store.learnt(piece.first + 1, piece.first + piece.length + (piece.ends ? 0 : 1));
  std::vector<std::int64_t> lengths;
  for (const Piece& piece : layout.pieces) lengths.push_back(piece.length);
  report.least_sequences = least_bins(lengths, seq_len);
  const std::int64_t places = report.sequences * seq_len;
  report.padding_tokens = places - store.size();
  if (places > 0) report.fill = static_cast<double>(store.size()) / static_cast<double>(places);
}

void check_size(const DataOptions& options, const DataReport& report) {
  const auto refuse = [&](const std::string& why) { throw FileError(first_file(options) + ": " + why); };
  if (report.tokens == 0) refuse("the data set is empty");
  if (options.packing == Packing::stream && report.sequences == 0)
    refuse(fmt::format("there are {} tokens; a sequence of seq_len = {} needs {}", report.tokens,
                       options.seq_len, options.seq_len + 1));
  if (report.target_tokens == 0)
    refuse("no token is a target: nothing follows the first token of a document, or no message is an answer");
}

}  // namespace

struct TokenDataset::Contents {
  TokenStore store;
  Packing packing{};
  std::int64_t seq_len = 0;
  bool answers_only = true;
  SequenceLayout layout;  // of best_fit and pad
  DataReport report;

  void check_index(std::int64_t index, const char* function) const;
  static std::unique_ptr<const Contents> make(const DataOptions& options, const Tokenizer* tokenizer);
};

void TokenDataset::Contents::check_index(std::int64_t index, const char* function) const {
  if (index < 0 || index >= report.sequences)
    throw Error(fmt::format("{}: sequence {} of {}", function, index, report.sequences));
}

std::unique_ptr<const TokenDataset::Contents> TokenDataset::Contents::make(const DataOptions& options,
                                                                           const Tokenizer* tokenizer) {
  check_options(options);
  auto contents = std::make_unique<Contents>();
  DataReport& report = contents->report;
  contents->packing = options.packing;
  contents->seq_len = options.seq_len;
  contents->store = Impl::data::read_documents(options, tokenizer, report);
  contents->answers_only = options.answers_only;
  if (!options.answers_only) contents->store.learn_all();
  const TokenStore& store = contents->store;
  report.malformed = store.malformed();
  count_documents(store.offsets(), report);
  if (options.packing == Packing::stream) {
    count_stream(store, options.seq_len, report);
  } else {
    contents->layout = Impl::data::lay_out(options.packing, store.offsets(), options.seq_len);
    count_packed(store, contents->layout, options.seq_len, report);
  }
  check_size(options, report);
  return contents;
}

std::filesystem::path default_cache_folder() {
  const auto set = [](const char* name) {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? value : nullptr;
  };
  if (const char* cache = set("XDG_CACHE_HOME")) return std::filesystem::path(cache) / "kformer";
  if (const char* home = set("HOME")) return std::filesystem::path(home) / ".cache/kformer";
  return {};
}

TokenDataset TokenDataset::open(const DataOptions& options, const Tokenizer& tokenizer) {
  return TokenDataset(Contents::make(options, &tokenizer));
}

TokenDataset TokenDataset::open(const DataOptions& options) {
  if (options.format == DataFormat::synthetic) return open(options, *open_tokenizer(TokenizerFormat::byte, {}));
  if (options.format != DataFormat::tokens)
    throw NotSupported(fmt::format("kformer::TokenDataset::open: data of the format {} needs a tokenizer",
                                   name_of(options.format)));
  return TokenDataset(Contents::make(options, nullptr));
}

TokenDataset::TokenDataset(std::unique_ptr<const Contents> contents) : m_contents(std::move(contents)) {}
TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(TokenDataset&& other) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&& other) noexcept = default;

std::int64_t TokenDataset::size() const { return m_contents->report.sequences; }
const DataReport& TokenDataset::report() const { return m_contents->report; }

std::string TokenDataset::fingerprint() const {
  const Contents& c = *m_contents;
  return Impl::hash_of(fmt::format("{} {} {}{}", c.store.content().text(), name_of(c.packing), c.seq_len,
                                   c.answers_only ? "" : " all"))
      .text();
}

std::int64_t TokenDataset::tokens_in(std::int64_t index) const {
  const Contents& c = *m_contents;
  c.check_index(index, "kformer::TokenDataset::tokens_in");
  if (c.packing == Packing::stream) return c.seq_len;
  std::int64_t tokens = 0;
  for (const Piece& piece : c.layout.sequence(index)) tokens += piece.length;
  return tokens;
}

void TokenDataset::read(std::int64_t index, TokenSequence& sequence) const {
  const Contents& c = *m_contents;
  c.check_index(index, "kformer::TokenDataset::read");
  const auto seq_len = static_cast<std::size_t>(c.seq_len);
  sequence.ids.assign(seq_len, 0);
  sequence.targets.assign(seq_len, Impl::data::no_target);
  sequence.starts.clear();
  if (c.packing == Packing::stream) {
    sequence.starts.push_back(0);
    c.store.ids(index * c.seq_len, sequence.ids);
    c.store.targets(index * c.seq_len + 1, sequence.targets);
    return;
  }
  std::size_t at = 0;
  for (const Piece& piece : c.layout.sequence(index)) {
    const auto length = static_cast<std::size_t>(piece.length);
    sequence.starts.push_back(static_cast<std::int32_t>(at));
    c.store.ids(piece.first, std::span(sequence.ids).subspan(at, length));
    c.store.targets(piece.first + 1, std::span(sequence.targets).subspan(at, length - (piece.ends ? 1 : 0)));
    at += length;
  }
}

}  // namespace kformer
