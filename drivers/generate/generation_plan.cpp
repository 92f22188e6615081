// SPDX-License-Identifier: MIT
#include "generate/generation_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "generate/figures.hpp"
#include "io/content_hash.hpp"
#include "kformer/core/error.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "language_model/cache_options.hpp"
#include "language_model/model_files.hpp"
#include "measure/memory_available.hpp"

namespace kformer::drivers {

namespace {

// Tokens of a prompt whose logits exist together.
constexpr std::int64_t most_scored = 64;

// An adapter that is added to the weights.
void require_dense_targets(const LoraConfig& lora, const WeightFormats& formats) {
  for (const auto& [name, format] : formats)
    for (std::size_t i = 0; i < lora.targets.size(); ++i)
      if (lora.targets[i].rank > 0 && name.ends_with("." + projection_weight_name(static_cast<Projection>(i))))
        throw NotSupported(
            fmt::format("kformer-generate: the adapter of adapter.path is added to the weights, but {} stays "
                        "quantised ({}); set adapter.live = true, or weights.keep_quantized = false",
                        name, to_string(format)));
}

// The engine of a deck.
EngineTask engine_task(const GenerateDeck& deck, const Checkpoint& checkpoint, std::int64_t longest_prompt,
                       const std::vector<std::int32_t>& end_of_text,
                       const std::shared_ptr<Communicator>& tensor) {
  if (tensor) require_divided({.tensor = tensor->size()}, checkpoint.model(), &checkpoint, "kformer-generate");
  const GenerateTable& g = deck.generate;
  const SamplingTable& s = deck.sampling;
  EngineTask task;
  task.config = llama_config(checkpoint.model());
  task.dtype = g.dtype;
  task.generator = {.batch = g.batch,
                    .max_new_tokens = g.max_new_tokens,
                    .prefill_chunk = std::max<std::int64_t>(1, longest_prompt),
                    .share_prefix = g.share_prefix,
                    .score_prompt = g.score_prompt,
                    .recompute = g.kv_cache == KvCacheKind::none,
                    .end_of_text = g.stop_at_eos ? end_of_text : std::vector<std::int32_t>(),
                    .repetition_window = s.repetition_window};
  if (g.prefill_chunk > 0)
    task.generator.prefill_chunk = std::min(task.generator.prefill_chunk, g.prefill_chunk);
  task.generator.sampling = {.temperature = s.temperature,
                             .top_k = s.top_k,
                             .top_p = s.top_p,
                             .min_p = s.min_p,
                             .repetition_penalty = s.repetition_penalty,
                             .seed = static_cast<std::uint64_t>(s.seed)};
  const std::int64_t wanted = longest_prompt + g.max_new_tokens;
  task.decoder = {.max_rows = std::max(task.generator.prefill_chunk, g.batch),
                  .max_logit_rows = g.score_prompt
                                        ? std::max(g.batch, std::min(task.generator.prefill_chunk, most_scored))
                                        : g.batch,
                  .max_positions = g.max_seq_len > 0 ? std::min(g.max_seq_len, wanted) : wanted,
                  .activations = g.activations,
                  .batch_invariant = g.batch_invariant,
                  .tensor = tensor};
  if (deck.weights.keep_quantized) task.decoder.formats = quantized_weights(checkpoint);
  if (deck.adapter.live)
    task.adapters.push_back(open_adapter(deck.adapter.path, task.config));
  else if (!deck.adapter.path.empty())
    task.adapter = open_adapter(deck.adapter.path, task.config);
  if (task.adapter) require_dense_targets(task.adapter->lora(), task.decoder.formats);
  for (const NamedAdapterTable& named : deck.adapters)
    task.adapters.push_back(open_adapter(named.path, task.config));
  for (const AdapterCheckpoint& adapter : task.adapters) task.decoder.adapters.push_back(adapter.lora());
  task.cache = cache_options(g.kv_cache, g.cache, task);
  task.staging_bytes = staging_bytes(checkpoint, task.decoder.formats);
  return task;
}

}  // namespace

GenerationPlan::GenerationPlan(const GenerateDeck& deck, const std::string& space,
                               const std::shared_ptr<Communicator>& tensor)
    : m_deck(deck),
      m_space(space),
      m_checkpoint(open_checkpoint(deck.weights)),
      m_encoder(open_tokenizer(deck.tokenizer, m_checkpoint), deck.tokenizer, m_checkpoint.model()),
      m_task(engine_task(deck, m_checkpoint, longest_prompt(), m_encoder.end_of_text(), tensor)),
      m_forecast(forecast_of(space, m_task)) {}

std::int64_t GenerationPlan::longest_prompt() const {
  std::size_t longest = 1;
  for (const PromptTable& prompt : m_deck.prompts) longest = std::max(longest, ids_of(prompt).size());
  return static_cast<std::int64_t>(longest);
}

// None if it cannot be encoded: that is reported in its turn, and the others continue.
std::vector<std::int32_t> GenerationPlan::ids_of(const PromptTable& prompt) const {
  try {
    return m_encoder.encode(prompt);
  } catch (const NotSupported&) {
    return {};
  }
}

std::map<std::string, std::string> GenerationPlan::contents() const {
  const auto of = [this](const AdapterCheckpoint& adapter) { return contents_of(adapter, m_task.config); };
  std::map<std::string, std::string> contents{{"weights.path", contents_of(m_checkpoint)},
                                              {"adapter.path", ""}};
  if (m_task.adapter) contents["adapter.path"] = of(*m_task.adapter);
  if (m_deck.adapter.live) contents["adapter.path"] = of(m_task.adapters.front());
  for (std::size_t i = 0; i < m_deck.adapters.size(); ++i)
    contents[fmt::format("adapters[{}].path", i)] = of(m_task.adapters[i]);
  std::string tokenizer = m_encoder.fingerprint();
  for (std::size_t i = 0; i < m_deck.prompts.size(); ++i) {
    const PromptTable& prompt = m_deck.prompts[i];
    contents[fmt::format("prompt[{}].file", i)] = Impl::hash_of(prompt_text(prompt)).text();
    contents[fmt::format("prompt[{}].expect_file", i)] =
        Impl::hash_of(expected_text(prompt).value_or("")).text();
    const std::vector<std::int32_t> ids = ids_of(prompt);
    tokenizer += Impl::hash_of(std::as_bytes(std::span(ids))).text();
  }
  contents["tokenizer.path"] = tokenizer;
  return contents;
}

std::size_t GenerationPlan::scratch_per_thread() const {
  return drivers::scratch_per_thread(m_task.config, !m_task.decoder.formats.empty());
}

void GenerationPlan::require_memory(const std::optional<std::size_t>& available) const {
  const std::size_t beside = scratch(), needed = m_forecast->peak_total() + beside;
  if (!available || needed <= *available) return;
  const std::string kernels =
      beside > 0 ? fmt::format(", of which {} are scratch memory of kernels,", format_bytes(beside)) : ",";
  throw OutOfMemory(
      fmt::format("kformer-generate: the run needs {}{} but only {} is available; reduce generate.batch, "
                  "generate.max_seq_len, generate.prefill_chunk or run.threads",
                  format_bytes(needed), kernels, format_bytes(*available)));
}

std::string GenerationPlan::note() const {
  const std::int64_t known = m_task.config.max_position_embeddings;
  if (known == 0 || m_task.decoder.max_positions <= known) return {};
  return fmt::format(
      "sequences may have {} tokens, more than max_position_embeddings = {} of the model, which learnt nothing "
      "of the "
      "places beyond; generate.max_seq_len = {} ends them there",
      m_task.decoder.max_positions, known, known);
}

std::string GenerationPlan::text() const {
  std::string text;
  for (const PromptTable& prompt : m_deck.prompts)
    text += fmt::format("tokens     {} in {}\n", m_encoder.encode(prompt).size(), prompt.name);
  text += fmt::format("sequences  at most {} tokens of {}\n", m_task.decoder.max_positions,
                      m_task.config.max_position_embeddings);
  const auto available = measure::memory_available(m_space);
  text += fmt::format("memory     {} ({}){}\n", format_bytes(m_forecast->peak_total()),
                      classes_text(peaks_of(*m_forecast)),
                      available ? fmt::format(" of {}", format_bytes(*available)) : std::string());
  if (scratch() > 0) text += fmt::format("scratch    {} of the kernels, beside it\n", format_bytes(scratch()));
  return text;
}

std::array<std::size_t, memory_classes> peaks_of(const Ledger& ledger) {
  std::array<std::size_t, memory_classes> peaks{};
  for (int c = 0; c < memory_classes; ++c)
    peaks[static_cast<std::size_t>(c)] = ledger.peak(static_cast<MemoryClass>(c));
  return peaks;
}

}  // namespace kformer::drivers
