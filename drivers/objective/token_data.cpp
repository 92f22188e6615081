// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "kformer/data/token_dataset.hpp"
#include "objective/sequence_source.hpp"

namespace kformer::drivers {

namespace {

class TokenData final : public SequenceSource {
 public:
  explicit TokenData(TokenDataset data) : m_data(std::move(data)) {}
  std::int64_t size() const override { return m_data.size(); }
  void read(std::int64_t index, TokenSequence& sequence) const override { m_data.read(index, sequence); }
  std::string fingerprint() const override { return m_data.fingerprint(); }
  std::string description() const override {
    const DataReport& r = m_data.report();
    std::string text =
        fmt::format("{} sequences, {} target tokens, {} documents", r.sequences, r.target_tokens, r.documents);
    if (r.dropped_tokens > 0) text += fmt::format(", {} tokens at the end are dropped", r.dropped_tokens);
    if (r.padding_tokens > 0)
      text += fmt::format(", {:.1f} % full; any packing needs at least {}", 100 * r.fill, r.least_sequences);
    for (const std::string& note : r.notes) text += "\n  " + note;
    return text;
  }

 private:
  TokenDataset m_data;
};

DataOptions data_options(const TrainDeck& deck, const LanguageModelTable& model) {
  const DataTable& t = deck.data;
  DataOptions options;
  options.format = t.format;
  options.packing = t.packing;
  options.seq_len = deck.batch.seq_len;
  options.vocab_size = model.vocab_size;
  if (!model.bos_token_ids.empty()) options.bos = static_cast<std::int32_t>(model.bos_token_ids[0]);
  options.add_bos = deck.tokenizer.add_bos;
  if (t.cache) options.cache = t.cache->empty() ? std::filesystem::path() : std::filesystem::absolute(*t.cache);
  const bool has_answers = t.format == DataFormat::chat || t.format == DataFormat::synthetic;
  options.answers_only = !has_answers || deck.objective.kind == ObjectiveKind::completion;
  if (t.format == DataFormat::synthetic)
    options.synthetic = {*t.task, *t.examples, *t.length, static_cast<std::uint64_t>(deck.run.seed)};
  return options;
}

std::unique_ptr<SequenceSource> open(const DataOptions& options, const Tokenizer* tokenizer) {
  return std::make_unique<TokenData>(tokenizer != nullptr ? TokenDataset::open(options, *tokenizer)
                                                          : TokenDataset::open(options));
}

// Synthetic tasks to judge by, at most.
constexpr std::int64_t most_examples = 1000;

}  // namespace

TrainingData open_training_data(const TrainDeck& deck, const LanguageModelTable& model,
                                const Tokenizer* tokenizer) {
  TrainingData data;
  if (deck.objective.kind == ObjectiveKind::dpo) {
    data.train = open_pairs(deck, model, *tokenizer, deck.data.train);
    if (deck.evaluation) data.validation = open_pairs(deck, model, *tokenizer, deck.data.validation);
    return data;
  }
  if (deck.objective.kind == ObjectiveKind::grpo) {
    data.train = open_prompts(deck, model, *tokenizer, deck.data.train, deck.policy->group_size);
    if (deck.evaluation) data.validation = open_prompts(deck, model, *tokenizer, deck.data.validation, 1);
    return data;
  }
  DataOptions options = data_options(deck, model);
  options.files = deck.data.train;
  // Not every line has messages: a tokenizer without a template is refused where the first one comes.
  if (deck.data.chat_style) options.chat = chat_template_of(*tokenizer, deck.data.chat_style);
  data.train = open(options, tokenizer);
  if (!deck.evaluation) return data;
  options.files = deck.data.validation;
  ++options.synthetic.seed;
  options.synthetic.samples = std::min(options.synthetic.samples, most_examples);
  data.validation = open(options, tokenizer);
  return data;
}

}  // namespace kformer::drivers
