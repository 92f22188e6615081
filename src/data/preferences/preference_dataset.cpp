// SPDX-License-Identifier: MIT
#include "kformer/data/preference_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "data/preferences/pair_line.hpp"
#include "data/prompt_encoder.hpp"
#include "io/content_hash.hpp"
#include "io/mapped_file.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/option_checks.hpp"

namespace kformer {

using namespace Impl::data;

namespace {

constexpr std::int32_t no_target = -100;

void check_options(const PreferenceDataOptions& options) {
  const auto require = [](bool good, const std::string& expected) {
    if (!good) throw Error("kformer::PreferenceDataset::open: " + expected);
  };
  require(!options.files.empty(), "there are no files of pairs");
  require(
      options.max_tokens >= 2 && options.max_tokens < std::numeric_limits<std::int32_t>::max(),
      fmt::format("max_tokens is {}; expected at least 2, for a prompt and a completion", options.max_tokens));
  Impl::require_enumerator("PreferenceDataset::open", "truncation", options.truncation);
}

/// Tokens with marks of those that are learnt.
struct Marked {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> learnt;

  bool operator==(const Marked&) const = default;

  /// Cuts what follows the first `most` tokens, and then what follows the last one that is learnt.
  void cut(std::int64_t most) {
    const auto count = std::min(most, std::ssize(ids));
    learnt.resize(static_cast<std::size_t>(count));
    const auto last = std::find(learnt.rbegin(), learnt.rend(), 1);
    learnt.erase(last.base(), learnt.end());
    ids.resize(learnt.size());
  }

  /// How many tokens precede the first that is learnt.
  std::int64_t prompt_tokens() const { return std::ranges::find(learnt, 1) - learnt.begin(); }
};

/// Reads the pairs of files.
class Reader {
 public:
  Reader(const PreferenceDataOptions& options, const Tokenizer& tokenizer)
      : m_options(options),
        m_encoder(tokenizer, {options.chat, options.bos, options.add_bos, options.vocab_size}) {}

  void read(const std::filesystem::path& path) {
    const Impl::MappedFile file = Impl::map_file(path);
    const std::string_view contents(reinterpret_cast<const char*>(file.start.get()), file.size);
    for_each_line(contents, path.string(), expected_pair, [&](const JsonLine& line, std::string_view text) {
      line.read([&] { std::visit([&](const auto& pair) { add(line, pair); }, pair_of(line, text)); });
    });
  }

  TokenDocuments documents;  ///< chosen and rejected in turn
  PreferenceReport report;

 private:
  template <class T>
  Marked sequence(const JsonLine& line, const T& prompt, const T& completion, const char* name) {
    TokenDocuments one;
    m_encoder.append(prompt, completion, one);
    m_encoder.check(one.tokens, line);
    Marked sequence{std::move(one.tokens), std::move(one.learnt)};
    sequence.cut(std::ssize(sequence.ids));
    if (sequence.ids.empty()) line.refuse(fmt::format("\"{}\" has no token to learn", name));
    if (sequence.prompt_tokens() == 0)
      line.refuse("the prompt is empty, and the tokenizer has no beginning-of-text token");
    return sequence;
  }

  template <class T>
  void add(const JsonLine& line, const Pair<T>& pair) {
    Marked chosen = sequence(line, pair.prompt, pair.chosen, "chosen");
    Marked rejected = sequence(line, pair.prompt, pair.rejected, "rejected");
    const std::int64_t most = m_options.max_tokens;
    const bool is_long = std::max(std::ssize(chosen.ids), std::ssize(rejected.ids)) > most;
    if (is_long && m_options.truncation == Truncation::keep_start) {
      chosen.cut(most);
      rejected.cut(most);
    }
    // Both begin with one prompt: where it fills one sequence, it fills both.
    if (is_long && (m_options.truncation == Truncation::drop || chosen.ids.empty())) {
      ++report.too_long;
    } else if (chosen == rejected) {
      ++report.equal;
    } else {
      report.truncated += is_long ? 1 : 0;
      ++report.pairs;
      store(chosen);
      store(rejected);
    }
  }

  void store(const Marked& sequence) {
    documents.tokens.insert(documents.tokens.end(), sequence.ids.begin(), sequence.ids.end());
    documents.learnt.insert(documents.learnt.end(), sequence.learnt.begin(), sequence.learnt.end());
    documents.end_document();
    report.longest = std::max(report.longest, std::ssize(sequence.ids));
    report.target_tokens += std::ranges::count(sequence.learnt, 1);
    report.tokens = documents.offsets.back();
  }

  const PreferenceDataOptions& m_options;
  PromptEncoder m_encoder;
};

}  // namespace

struct PreferenceDataset::Contents {
  TokenDocuments documents;
  PreferenceReport report;

  void read(std::int64_t document, TokenSequence& sequence) const;
};

void PreferenceDataset::Contents::read(std::int64_t document, TokenSequence& sequence) const {
  const auto begin = documents.offsets[static_cast<std::size_t>(document)];
  const auto end = documents.offsets[static_cast<std::size_t>(document) + 1];
  sequence.ids.assign(documents.tokens.begin() + begin, documents.tokens.begin() + end);
  sequence.targets.assign(sequence.ids.size(), no_target);
  sequence.starts.clear();
  for (std::size_t i = 1; i < sequence.ids.size(); ++i)
    if (documents.learnt[static_cast<std::size_t>(begin) + i] != 0) sequence.targets[i - 1] = sequence.ids[i];
}

PreferenceDataset PreferenceDataset::open(const PreferenceDataOptions& options, const Tokenizer& tokenizer) {
  check_options(options);
  Reader reader(options, tokenizer);
  for (const std::filesystem::path& path : options.files) reader.read(path);
  const PreferenceReport& report = reader.report;
  if (report.pairs == 0)
    throw FileError(
        fmt::format("'{}'{}: there are no pairs to learn from; {} are too long, {} have equal completions",
                    options.files.front().string(), options.files.size() > 1 ? " and others" : "",
                    report.too_long, report.equal));
  auto contents = std::make_unique<Contents>();
  contents->documents = std::move(reader.documents);
  contents->report = report;
  return PreferenceDataset(std::move(contents));
}

PreferenceDataset::PreferenceDataset(std::unique_ptr<const Contents> contents)
    : m_contents(std::move(contents)) {}
PreferenceDataset::~PreferenceDataset() = default;
PreferenceDataset::PreferenceDataset(PreferenceDataset&& other) noexcept = default;
PreferenceDataset& PreferenceDataset::operator=(PreferenceDataset&& other) noexcept = default;

std::int64_t PreferenceDataset::size() const { return m_contents->report.pairs; }
const PreferenceReport& PreferenceDataset::report() const { return m_contents->report; }

void PreferenceDataset::read(std::int64_t index, PreferenceSequences& sequences) const {
  if (index < 0 || index >= size())
    throw Error(fmt::format("kformer::PreferenceDataset::read: pair {} of {}", index, size()));
  m_contents->read(2 * index, sequences.chosen);
  m_contents->read(2 * index + 1, sequences.rejected);
  const auto first =
      std::ranges::find_if(sequences.chosen.targets, [](std::int32_t t) { return t != no_target; });
  sequences.prompt_tokens = first - sequences.chosen.targets.begin() + 1;
}

std::string PreferenceDataset::fingerprint() const {
  const TokenDocuments& d = m_contents->documents;
  const auto hash = [](const auto& values) { return Impl::hash_of(std::as_bytes(std::span(values))).text(); };
  return Impl::hash_of(hash(d.tokens) + hash(d.offsets) + hash(d.learnt)).text();
}

}  // namespace kformer
