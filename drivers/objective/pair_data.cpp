// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "kformer/data/preference_dataset.hpp"
#include "objective/line_options.hpp"
#include "objective/sequence_source.hpp"

namespace kformer::drivers {

namespace {

// As long as a sequence of the batch; what follows the last target has none.
void fill_up(TokenSequence& sequence, std::int64_t seq_len) {
  sequence.ids.resize(static_cast<std::size_t>(seq_len), 0);
  sequence.targets.resize(static_cast<std::size_t>(seq_len), -100);
}

class PairData final : public SequenceSource {
 public:
  PairData(PreferenceDataset data, std::int64_t seq_len) : m_data(std::move(data)), m_seq_len(seq_len) {}
  std::int64_t size() const override { return 2 * m_data.size(); }
  std::int64_t together() const override { return 2; }
  void read(std::int64_t index, TokenSequence& sequence) const override {
    PreferenceSequences pair;
    m_data.read(index / 2, pair);
    sequence = std::move(index % 2 == 0 ? pair.chosen : pair.rejected);
    fill_up(sequence, m_seq_len);
  }
  std::string fingerprint() const override { return m_data.fingerprint(); }
  std::string description() const override {
    const PreferenceReport& r = m_data.report();
    std::string text = fmt::format("{} pairs, {} tokens, {} target tokens, the longest sequence has {}",
                                   r.pairs, r.tokens, r.target_tokens, r.longest);
    if (r.truncated > 0)
      text += fmt::format("\n  note: {} pairs were cut to batch.seq_len = {}", r.truncated, m_seq_len);
    if (r.too_long > 0)
      text += fmt::format("\n  note: {} pairs are left out, too long for batch.seq_len = {}", r.too_long,
                          m_seq_len);
    if (r.equal > 0)
      text += fmt::format("\n  note: {} pairs are left out, both of their completions are the same", r.equal);
    return text;
  }

 private:
  PreferenceDataset m_data;
  std::int64_t m_seq_len;
};

}  // namespace

std::unique_ptr<SequenceSource> open_pairs(const TrainDeck& deck, const LanguageModelTable& model,
                                           const Tokenizer& tokenizer,
                                           const std::vector<std::filesystem::path>& files) {
  auto options = line_options<PreferenceDataOptions>(deck, model, tokenizer, files);
  options.max_tokens = deck.batch.seq_len;
  options.truncation = *deck.data.truncation;
  return std::make_unique<PairData>(PreferenceDataset::open(options, tokenizer), deck.batch.seq_len);
}

}  // namespace kformer::drivers
