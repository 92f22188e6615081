// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include "objective/line_options.hpp"
#include "objective/sequence_source.hpp"

namespace kformer::drivers {

namespace {

class PromptData final : public SequenceSource {
 public:
  PromptData(PromptDataset data, std::int64_t group_size) : m_data(std::move(data)), m_group_size(group_size) {}
  std::int64_t size() const override { return m_group_size * m_data.size(); }
  std::int64_t together() const override { return m_group_size; }
  void read(std::int64_t index, TokenSequence& sequence) const override {
    sequence = {m_data.at(index / m_group_size).ids, {}, {0}};
  }
  const PromptDataset* prompts() const override { return &m_data; }
  std::string fingerprint() const override { return m_data.fingerprint(); }
  std::string description() const override {
    const PromptReport& r = m_data.report();
    std::string text = fmt::format("{} prompts, {} tokens, the longest has {}", r.prompts, r.tokens, r.longest);
    if (r.too_long > 0)
      text += fmt::format(
          "\n  note: {} prompts are left out, too long for batch.seq_len - policy.max_new_tokens", r.too_long);
    return text;
  }

 private:
  PromptDataset m_data;
  std::int64_t m_group_size;
};

}  // namespace

std::unique_ptr<SequenceSource> open_prompts(const TrainDeck& deck, const LanguageModelTable& model,
                                             const Tokenizer& tokenizer,
                                             const std::vector<std::filesystem::path>& files,
                                             std::int64_t group_size) {
  auto options = line_options<PromptDataOptions>(deck, model, tokenizer, files);
  options.max_tokens = deck.batch.seq_len - deck.policy->max_new_tokens;
  return std::make_unique<PromptData>(PromptDataset::open(options, tokenizer), group_size);
}

}  // namespace kformer::drivers
