// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generate/generation.hpp"
#include "generate/logit_check.hpp"
#include "generate/prompt_encoder.hpp"
#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "language_model/cache_options.hpp"
#include "language_model/model_files.hpp"
#include "language_model/text_engine.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/kernel_names.hpp"
#include "measure/memory_available.hpp"

namespace kformer::drivers {

namespace {

// Tokens of a prompt whose logits exist together.
constexpr std::int64_t most_scored = 64;

// The engine of a deck.
EngineTask engine_task(const GenerateDeck& deck, const Checkpoint& checkpoint, std::int64_t longest_prompt,
                       const std::vector<std::int32_t>& end_of_text) {
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
                  .batch_invariant = g.batch_invariant};
  if (deck.weights.keep_quantized) task.decoder.formats = quantized_weights(checkpoint);
  if (deck.adapter.live)
    task.adapters.push_back(open_adapter(deck.adapter.path, task.config));
  else if (!deck.adapter.path.empty())
    task.adapter = open_adapter(deck.adapter.path, task.config);
  for (const NamedAdapterTable& named : deck.adapters)
    task.adapters.push_back(open_adapter(named.path, task.config));
  for (const AdapterCheckpoint& adapter : task.adapters) task.decoder.adapters.push_back(adapter.lora());
  task.cache = cache_options(g.kv_cache, g.cache, task);
  task.staging_bytes = staging_bytes(checkpoint, task.decoder.formats);
  return task;
}

// A row while it grows.
struct GrowingRow {
  TokenStream stream;
  std::string new_text;  // for stop strings
};

/// Engine, tokenizer and checkpoint of a deck.
class DeckGenerator final : public TextGenerator {
 public:
  DeckGenerator(const GenerateDeck& deck, const std::string& space)
      : m_deck(deck),
        m_checkpoint(open_checkpoint(deck.weights)),
        m_encoder(open_tokenizer(deck.tokenizer, m_checkpoint), deck.tokenizer, m_checkpoint.model()),
        m_space(space),
        m_task(engine_task(deck, m_checkpoint, longest_prompt(), m_encoder.end_of_text())),
        m_predicted(forecast_of(space, m_task)->peak_total()),
        m_ledger(Ledger::create()) {
    require_memory();
    if (deck.profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
    m_engine = make_text_engine(space, m_task, m_ledger);
    const measure::KernelNames loading;
    m_engine->load(m_checkpoint, {});
    if (m_task.adapter)
      fmt::print(stderr, "merged into the weights: adapter '{}', rank x scale: {}\n",
                 deck.adapter.path.string(), adapter_text(m_task.adapter->lora()));
    if (deck.check.reference == GenerateReference::recompute)
      m_check = std::make_unique<LogitCheck>(space, m_task, m_checkpoint, loading.text());
  }

  std::vector<std::int32_t> encode(const PromptTable& prompt) const override {
    return m_encoder.encode(prompt);
  }

  Generation generate(const GenerationTask& task) override;

 private:
  std::int64_t longest_prompt() const {
    std::size_t longest = 1;
    for (const PromptTable& prompt : m_deck.prompts) longest = std::max(longest, tokens_of(prompt));
    return static_cast<std::int64_t>(longest);
  }

  // None if it cannot be encoded: that is reported in its turn, and the others continue.
  std::size_t tokens_of(const PromptTable& prompt) const {
    try {
      return encode(prompt).size();
    } catch (const NotSupported&) {
      return 0;
    }
  }

  void require_memory() const {
    const auto available = measure::memory_available(m_space);
    if (available && m_predicted > *available)
      throw OutOfMemory(
          fmt::format("kformer-generate: the run needs {}, but only {} is available; reduce "
                      "generate.batch, generate.max_seq_len or generate.prefill_chunk",
                      format_bytes(m_predicted), format_bytes(*available)));
  }

  bool checks(const GenerationTask& task) const { return m_check && task.check; }
  // The adapters of rows; the only one of all prompts needs no choice.
  std::vector<std::int32_t> chosen(const GenerationTask& task, std::size_t rows) const {
    return m_deck.adapters.empty() ? std::vector<std::int32_t>() : std::vector(rows, task.adapter);
  }
  void run(const GenerationTask& task, Generation& generation);
  void begin_row(const GenerationTask& task, std::size_t row, Sequence& sequence) const;
  std::string take_token(std::size_t row, double clock, GrowingRow& grown, Sequence& sequence);
  void judge_ends(Generation& generation) const;
  void note_memory(Measurement& measurement) const;
  SequenceEnd end_of(const GeneratedSequence& sequence) const;

  const GenerateDeck& m_deck;
  Checkpoint m_checkpoint;
  PromptEncoder m_encoder;
  std::string m_space;
  EngineTask m_task;
  std::size_t m_predicted;
  std::shared_ptr<Ledger> m_ledger;
  std::unique_ptr<TextEngine> m_engine;
  std::unique_ptr<LogitCheck> m_check;
};

Generation DeckGenerator::generate(const GenerationTask& task) {
  Generation generation;
  Measurement& measurement = generation.measurement;
  measurement.status = CaseStatus::unchecked;
  const measure::KernelNames names;
  if (task.profile) {
    measure::Profiler profiler;
    run(task, generation);
    measurement.regions = profiler.regions();
    measurement.profile = profiler.kernels();
  } else {
    run(task, generation);
  }
  measurement.kernels = names.text();
  note_memory(measurement);
  if (checks(task) && measurement.status == CaseStatus::unchecked)
    m_check->judge(*m_engine, generation, [&] { return task.stop && task.stop(); });
  return generation;
}

void DeckGenerator::run(const GenerationTask& task, Generation& generation) {
  const auto batch = static_cast<std::size_t>(task.batch);
  bool interrupted = false;
  const auto stop = [&] { return interrupted = task.stop && task.stop(); };
  generation.prefill_seconds = m_engine->start(std::vector(batch, task.prompt), stop, chosen(task, batch));
  generation.prefill_tokens = m_engine->computed_tokens();
  generation.sequences.assign(batch, {});
  for (std::size_t r = 0; r < batch; ++r) begin_row(task, r, generation.sequences[r]);
  std::vector<GrowingRow> rows(batch, {TokenStream(m_encoder.tokenizer(), task.prompt), {}});
  double clock = generation.prefill_seconds;
  bool first = true;
  if (m_check) m_check->clear();
  const bool cut = interrupted;  // in the prompt
  while (m_engine->running() && !stop()) {
    std::vector<std::size_t> live;
    double bytes_read = static_cast<double>(m_engine->weight_bytes());
    for (std::size_t r = 0; r < batch; ++r) {
      if (m_engine->sequences()[r].stopped != StopReason::none) continue;
      live.push_back(r);
      bytes_read += m_engine->cache_bytes(static_cast<std::int64_t>(r));
    }
    const double seconds = m_engine->step();
    clock += seconds;
    if (first) {
      generation.prefill_seconds = clock;
      // The last token of the prompt, which all rows have, counts once.
      generation.prefill_tokens = m_engine->computed_tokens() - static_cast<std::int64_t>(batch) + 1;
    } else {
      generation.decode_seconds += seconds;
      generation.decode_tokens += static_cast<std::int64_t>(live.size());
      generation.decode_bytes_min += bytes_read;
    }
    first = false;
    for (const std::size_t r : live) {
      const std::string text = take_token(r, clock, rows[r], generation.sequences[r]);
      if (r == 0 && task.on_text && !text.empty()) task.on_text(text);
    }
    if (checks(task)) m_check->keep(*m_engine);
  }
  judge_ends(generation);
  if (task.on_text)
    if (const std::string rest = rows[0].stream.finish(); !rest.empty()) task.on_text(rest);
  if (interrupted)
    for (std::size_t r = 0; r < batch; ++r)
      if (cut || m_engine->sequences()[r].stopped == StopReason::none)
        generation.sequences[r].end = SequenceEnd::interrupted;
  if (!m_deck.generate.last_logits || interrupted) return;
  auto logits = m_engine->final_logits();
  for (std::size_t r = 0; r < batch; ++r) generation.sequences[r].last_logits = std::move(logits[r]);
}

void DeckGenerator::begin_row(const GenerationTask& task, std::size_t row, Sequence& sequence) const {
  const GeneratedSequence& from = m_engine->sequences()[row];
  sequence.prompt_tokens = static_cast<std::int64_t>(task.prompt.size());
  sequence.end = end_of(from);
  for (std::size_t i = 0; i < task.prompt.size(); ++i)
    sequence.tokens.push_back(
        {task.prompt[i], m_encoder.tokenizer().token_bytes(task.prompt[i], i == 0), from.log_probabilities[i]});
}

// The newest token of a row; returns the text that is complete with it.
std::string DeckGenerator::take_token(std::size_t row, double clock, GrowingRow& grown, Sequence& sequence) {
  const GeneratedSequence& from = m_engine->sequences()[row];
  if (from.stopped == StopReason::no_token) {
    sequence.end = SequenceEnd::no_token;
    return {};
  }
  const std::int32_t id = from.tokens.back();
  sequence.tokens.push_back({id, m_encoder.tokenizer().token_bytes(id, sequence.tokens.empty()),
                             m_deck.generate.log_probabilities ? from.log_probabilities.back() : NAN, clock});
  std::string text = grown.stream.push(id);
  grown.new_text += text;
  sequence.end = end_of(from);
  const auto ends = [&](const std::string& stop) { return grown.new_text.find(stop) != stop.npos; };
  if (std::ranges::any_of(m_deck.generate.stop, ends)) {
    m_engine->stop(static_cast<std::int64_t>(row));
    sequence.end = SequenceEnd::stop_string;
  }
  return text;
}

// A model that cannot choose a token is an error for any request.
void DeckGenerator::judge_ends(Generation& generation) const {
  for (std::size_t r = 0; r < generation.sequences.size(); ++r) {
    const Sequence& s = generation.sequences[r];
    if (s.end != SequenceEnd::no_token) continue;
    generation.measurement.status = CaseStatus::error;
    generation.measurement.message = fmt::format(
        "row {} ends after {} tokens: every logit is NaN or -inf; check the weights", r, s.tokens.size());
    return;
  }
}

SequenceEnd DeckGenerator::end_of(const GeneratedSequence& sequence) const {
  if (sequence.stopped == StopReason::end_of_text) return SequenceEnd::end_of_text;
  if (sequence.stopped == StopReason::length && sequence.new_tokens() < m_task.generator.max_new_tokens)
    return SequenceEnd::max_seq_len;
  return SequenceEnd::max_new_tokens;
}

void DeckGenerator::note_memory(Measurement& measurement) const {
  for (int c = 0; c < memory_classes; ++c)
    measurement.peak[static_cast<std::size_t>(c)] = m_ledger->peak(static_cast<MemoryClass>(c));
  measurement.peak_total = m_ledger->peak_total();
  measurement.predicted = m_predicted;
  if (m_deck.profile.memory != MemoryProfile::peak) return;
  const measure::AllocationWitness& witness = measure::AllocationWitness::install();
  if (witness.installed())
    for (const auto& [name, space] : witness.spaces()) measurement.witnessed[name] = space.peak;
  measurement.on_device = measure::device_memory();
}

}  // namespace

std::unique_ptr<TextGenerator> make_text_generator(const GenerateDeck& deck, const std::string& space) {
  return std::make_unique<DeckGenerator>(deck, space);
}

}  // namespace kformer::drivers
