// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "app/say.hpp"
#include "generate/generation.hpp"
#include "generate/generation_plan.hpp"
#include "generate/logit_check.hpp"
#include "language_model/model_files.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/kernel_names.hpp"
#include "measure/memory_available.hpp"
#include "measure/process/core_wait.hpp"
#include "sweep/check_kernels.hpp"

namespace kformer::drivers {

namespace {

// A row while it grows.
struct GrowingRow {
  TokenStream stream;
  std::string new_text;  // for stop strings
};

/// Engine, tokenizer and checkpoint of a deck.
class DeckGenerator final : public TextGenerator {
 public:
  DeckGenerator(const GenerateDeck& deck, const std::string& space, GenerationPlan plan,
                const std::shared_ptr<Ledger>& ledger)
      : m_deck(deck), m_plan(std::move(plan)), m_ledger(ledger) {
    if (deck.profile.memory == MemoryProfile::peak) measure::AllocationWitness::install();
    m_engine = make_text_engine(space, m_plan.task(), m_ledger);
    const measure::KernelNames loading;
    m_engine->load(m_plan.checkpoint(), {});
    if (const auto& adapter = m_plan.task().adapter)
      say(stderr, "merged into the weights: adapter '{}', rank x scale: {}\n", deck.adapter.path.string(),
          adapter_text(adapter->lora()));
    if (deck.check.reference == GenerateReference::recompute)
      m_check = std::make_unique<LogitCheck>(space, m_plan.task(), m_plan.checkpoint(), loading.text());
  }

  std::vector<std::int32_t> encode(const PromptTable& prompt) const override {
    return m_plan.encoder().encode(prompt);
  }

  Generation generate(const GenerationTask& task) override;

 private:
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
  GenerationPlan m_plan;
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
  if (!checks(task) || measurement.status != CaseStatus::unchecked) return generation;
  const auto check = [&] { m_check->judge(*m_engine, generation, [&] { return task.stop && task.stop(); }); };
  // Other ranks wait for one whose check fails alone: that ends them all.
  if (m_plan.task().decoder.tensor)
    check();
  else
    check_if_possible(measurement, check);
  return generation;
}

void DeckGenerator::run(const GenerationTask& task, Generation& generation) {
  const auto batch = static_cast<std::size_t>(task.batch);
  const measure::CoreWatch cores;
  bool interrupted = false;
  const auto stop = [&] { return interrupted = task.stop && task.stop(); };
  generation.prefill_seconds = m_engine->start(std::vector(batch, task.prompt), stop, chosen(task, batch));
  generation.prefill_tokens = m_engine->computed_tokens();
  generation.sequences.assign(batch, {});
  for (std::size_t r = 0; r < batch; ++r) begin_row(task, r, generation.sequences[r]);
  std::vector<GrowingRow> rows(batch, {TokenStream(m_plan.encoder().tokenizer(), task.prompt), {}});
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
      ++generation.decode_steps;
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
  // Several ranks are a load for each other.
  if (!m_plan.task().decoder.tensor) generation.measurement.core_wait_share = cores.share();
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
    sequence.tokens.push_back({task.prompt[i], m_plan.encoder().tokenizer().token_bytes(task.prompt[i], i == 0),
                               from.log_probabilities[i]});
}

// The newest token of a row; returns the text that is complete with it.
std::string DeckGenerator::take_token(std::size_t row, double clock, GrowingRow& grown, Sequence& sequence) {
  const GeneratedSequence& from = m_engine->sequences()[row];
  if (from.stopped == StopReason::no_token) {
    sequence.end = SequenceEnd::no_token;
    return {};
  }
  const std::int32_t id = from.tokens.back();
  sequence.tokens.push_back({id, m_plan.encoder().tokenizer().token_bytes(id, sequence.tokens.empty()),
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
  if (sequence.stopped == StopReason::length && sequence.new_tokens() < m_plan.task().generator.max_new_tokens)
    return SequenceEnd::max_seq_len;
  return SequenceEnd::max_new_tokens;
}

void DeckGenerator::note_memory(Measurement& measurement) const {
  measurement.peak = peaks_of(*m_ledger);
  measurement.peak_total = m_ledger->peak_total();
  measurement.predicted = m_plan.forecast()->peak_total();
  if (m_deck.profile.memory != MemoryProfile::peak) return;
  const measure::AllocationWitness& witness = measure::AllocationWitness::install();
  if (witness.installed())
    for (const auto& [name, space] : witness.spaces()) measurement.witnessed[name] = space.peak;
  measurement.on_device = measure::device_memory();
}

}  // namespace

std::unique_ptr<TextGenerator> make_text_generator(const GenerateDeck& deck, const std::string& space,
                                                   GenerationPlan plan, const std::shared_ptr<Ledger>& ledger) {
  return std::make_unique<DeckGenerator>(deck, space, std::move(plan), ledger);
}

}  // namespace kformer::drivers
