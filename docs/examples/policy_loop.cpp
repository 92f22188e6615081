// SPDX-License-Identifier: MIT
// GRPO, the loop of sampler and policy: a model of random weights learns, from nothing but rewards of what it writes itself, to answer
// with a letter from a to e. Checks that the mean reward rises, and that the log-probabilities of the sampler are those of the
// trainer, to the bit. Uses the tokenizer of bytes, which needs no file.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "kformer/core/view_of.hpp"
#include "kformer/data/rewards.hpp"
#include "kformer/model/generator.hpp"
#include "kformer/text/tokenizer.hpp"
#include "kformer/train/group_advantages.hpp"
#include "kformer/train/policy_loss.hpp"
#include "kformer/train/trainer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
constexpr int group_size = 16, new_tokens = 4, seq_len = 16, steps = 20;

// Prompt and completion. The tokens of the completion are the targets.
kformer::TokenSequence sequence_of(const kformer::GeneratedSequence& s) {
  kformer::TokenSequence sequence{s.tokens, std::vector<std::int32_t>(seq_len, -100), {}};
  sequence.ids.resize(seq_len, 0);
  for (std::int64_t i = s.prompt_tokens; i < std::ssize(s.tokens); ++i) sequence.targets[i - 1] = s.tokens[i];
  return sequence;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const auto ledger = kformer::Ledger::create();
  const auto tokenizer = kformer::open_tokenizer(kformer::TokenizerFormat::byte, "");
  std::vector<kformer::PromptSample> prompts;  // `PromptDataset` reads them from a file
  for (const std::string text : {"Say a", "A letter?", "a-e:"})
    prompts.push_back({.ids = tokenizer->encode(text), .prompt = '"' + text + '"', .fields = {}});
  std::vector<std::vector<std::int32_t>> groups;  // each prompt `group_size` times
  for (const kformer::PromptSample& prompt : prompts) groups.insert(groups.end(), group_size, prompt.ids);
  const std::int64_t completions = std::ssize(groups);

  const kformer::LlamaConfig config{.hidden_size = 32,
                                    .intermediate_size = 64,
                                    .num_attention_heads = 2,
                                    .num_key_value_heads = 1,
                                    .head_dim = 16,
                                    .num_hidden_layers = 2,
                                    .vocab_size = 258,
                                    .max_position_embeddings = seq_len};
  // [sampler]
  kformer::Trainer<Exec, float> trainer(config,
                                        {.shape = {.batch = group_size, .seq_len = seq_len},
                                         .layer = {.batch_invariant = true},
                                         .optimizer = {.max_norm = 1},
                                         .schedule = {.learning_rate = 1e-2}},
                                        *ledger);
  // The decoder borrows the weights of the trainer: it has what they are after each step.
  kformer::LlamaDecoder<Exec, float> decoder(
      trainer.model(),
      {.max_rows = 64, .max_logit_rows = completions, .max_positions = seq_len, .batch_invariant = true},
      *ledger);
  const auto cache = kformer::KvCache<Exec, float>::create(config,
                                                           {.num_layers = config.num_hidden_layers,
                                                            .batch = completions,
                                                            .capacity = seq_len,
                                                            .max_step_tokens = 64},
                                                           *ledger);
  kformer::Generator<Exec, float> generator(decoder, *cache,
                                            {.batch = completions,
                                             .max_new_tokens = new_tokens,
                                             .prefill_chunk = 64,
                                             .end_of_text = tokenizer->eos(),
                                             .sampling = {.seed = 1}},
                                            *ledger);
  // [sampler]
  const Kokkos::Random_XorShift64_Pool<Exec> random(1);
  for (const kformer::Parameter& p : trainer.model().parameters())
    if (p.weight.rank == 1)
      Kokkos::deep_copy(exec, kformer::view_of<float*>(p.weight), 1.0f);  // the norms
    else
      Kokkos::fill_random(exec, kformer::view_of<float**>(p.weight), random, -0.15f, 0.15f);
  trainer.prepare(exec);
  decoder.prepare(exec);

  kformer::Rewards rewards({{.kind = kformer::RewardKind::regex, .pattern = "[a-e]"}});
  double first_reward = 0, reward = 0;
  int unequal = 0;
  for (int step = 0; step < steps; ++step) {
    // [step]
    generator.start(exec, groups);
    generator.draw_from(step * completions);  // other random numbers than those of earlier steps
    while (generator.running()) generator.step(exec);

    std::vector<kformer::TokenSequence> sequences;
    std::vector<double> scores, sampled;  // of completions, and log-probabilities of their tokens
    for (const kformer::GeneratedSequence& s : generator.sequences()) {
      const std::string text = tokenizer->decode(std::span(s.tokens).subspan(s.prompt_tokens));
      const auto& prompt = prompts[scores.size() / group_size];
      scores.push_back(rewards.score({.prompt = prompt, .completion = text, .tokens = s.new_tokens()}).total);
      sampled.insert(sampled.end(), s.log_probabilities.begin() + s.prompt_tokens, s.log_probabilities.end());
      sequences.push_back(sequence_of(s));
    }
    const auto advantages = kformer::group_advantages(scores, group_size).advantages;
    const kformer::PolicyBatch all{.completions = completions, .tokens = static_cast<double>(sampled.size())};
    std::size_t begin = 0;  // of the tokens of a micro-batch
    const kformer::StepReport report =
        trainer.step(exec, sequences, [&](std::size_t first, const kformer::LogProbabilities& logp) {
          const auto old_logp = std::span(sampled).subspan(begin, logp.values.size());
          begin += old_logp.size();
          for (std::size_t i = 0; i < old_logp.size(); ++i) unequal += logp.values[i] != old_logp[i];
          const auto loss =
              kformer::policy_loss({.logp = logp.values,
                                    .old_logp = old_logp,
                                    .reference_logp = {},
                                    .mask = {},
                                    .offsets = logp.offsets,
                                    .advantages = std::span(advantages).subspan(first, logp.sequences())},
                                   {.kind = kformer::PolicyKind::dapo, .epsilon_high = 0.28}, all);
          return kformer::ObjectiveShare{loss.loss, loss.dlogp};
        });
    // [step]
    reward = std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(completions);
    if (step == 0) first_reward = reward;
    std::printf("step %lld: mean reward %.3f\n", static_cast<long long>(report.step), reward);
  }
  std::printf("tokens whose log-probabilities differ: %d\n", unequal);
  return unequal == 0 && first_reward < 0.5 && reward > 0.9 ? 0 : 1;
}
