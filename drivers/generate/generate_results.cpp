// SPDX-License-Identifier: MIT
#include "generate/generate_results.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "sweep/check_kernels.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

constexpr double none = std::numeric_limits<double>::quiet_NaN();

double rate(std::int64_t tokens, double seconds) {
  return tokens > 0 && seconds > 0 ? static_cast<double>(tokens) / seconds : none;
}

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "generation: a prompt, continued by all rows of a batch together");
  t.column({"op", text, "1", "what was run"});
  t.column({"prompt", text, "1", "name of the prompt"});
  t.column({"repeat", i64, "1", "repeat of the prompt"});
  t.column({"dtype", text, "1", "storage type of activations and dense weights"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"activations", text, "1", "activations in products with quantised weights"});
  t.column({"kv_cache", text, "1", "keys and values that were kept"});
  t.column({"batch", i64, "1", "sequences"});
  t.column({"prompt_tokens", i64, "1", "tokens of the prompt"});
  t.column({"new_tokens", i64, "1", "new tokens of all sequences"});
  t.column({"prefill_tokens", i64, "1", "prompt tokens that were computed; shared ones count once"});
  t.column({"prefill_time", f64, "s", "time until the first new tokens were chosen"});
  t.column({"prefill_rate", f64, "1/s", "prefill_tokens over prefill_time"});
  t.column({"decode_tokens", i64, "1", "new tokens after the first of each sequence"});
  t.column({"decode_time", f64, "s", "time of the steps after prefill"});
  t.column({"decode_rate", f64, "1/s", "decode_tokens over decode_time"});
  t.column({"decode_bytes_min", f64, "byte", "compulsory traffic of the steps after prefill"});
  t.column({"bandwidth_limit", f64, "byte/s",
            "highest rate of reads, updates and copies of the bytes of a step, before or after"});
  t.column({"share_of_limit", f64, "1", "shortest time that the machine's limits allow, over decode_time"});
  declare_disturbances(t, "generation");
  declare_peak_columns(t);
  declare_check_columns(t);
  t.column({"max_logit_err", f64, "1", "largest difference of a logit from a full recomputation in double"});
  declare_outcome_columns(t, "generation");
  t.attribute("share_of_limit_formula", "decode_bytes_min / bandwidth_limit / decode_time",
              "what share_of_limit means");
  return t;
}

Table& declare_generations(ResultFile& file) {
  Table& t =
      declare_table_of_cases(file, "generations", "generation", "sequence: a row of the batch of a case");
  t.when("where a case ran");
  t.column({"prompt", text, "1", "name of the prompt"});
  t.column({"adapter", text, "1", "name of the adapter; empty: the model alone"});
  t.column({"row", i64, "1", "row of the batch"});
  t.column({"seed", i64, "1", "seed of the draws, each row with a stream of its own"});
  t.column({"prompt_tokens", i64, "1", "tokens of the prompt"});
  t.column({"new_tokens", i64, "1", "tokens that were generated"});
  t.column({"end", flag, "1", "why the sequence ended", "", sequence_end_names});
  t.column({"mean_nll", f64, "1",
            "mean negative log-likelihood of all tokens except the first, in nats; of the new tokens if the "
            "prompt was not scored"});
  t.column({"mean_nll_new", f64, "1", "mean negative log-likelihood of the new tokens, in nats"});
  t.column({"prompt_text", text, "1", "prompt as the deck has it"});
  t.column({"text", text, "1", "text of the new tokens"});
  return t;
}

RecordTable<TokenRow> declare_tokens(ResultFile& file) {
  Table& t = file.table("tokens", "token", "token of a sequence, of the prompt or new");
  t.when("where a case ran");
  return {t,
          {{{"generation", i32, "1", "row in /generations"}, &TokenRow::generation},
           {{"position", i64, "1", "place in the sequence"}, &TokenRow::position},
           {{"id", i32, "1", "number in the vocabulary"}, &TokenRow::id},
           {{"new", flag, "1", "whether it was generated", "", {"no", "yes"}}, &TokenRow::is_new},
           {{"piece", text, "1", "what it adds to the text"}, &TokenRow::bytes},
           {{"log_probability", f64, "1",
             "natural logarithm of its probability after the previous tokens, from the model alone"},
            &TokenRow::log_probability},
           {{"time", f64, "s", "from the start of the generation to the end of the token's step"},
            &TokenRow::time}}};
}

Table& declare_logits(ResultFile& file) {
  Table& t = file.table("logits", "generation", "sequence: a row of /generations");
  t.when("with [generate] last_logits");
  t.dimension("word", "number in the vocabulary");
  t.column({"last_logits", f64, "1", "logits after the last token", "word"});
  return t;
}

}  // namespace

std::string new_text_of(const Sequence& sequence) {
  std::string text;
  for (auto i = static_cast<std::size_t>(sequence.prompt_tokens); i < sequence.tokens.size(); ++i)
    text += sequence.tokens[i].bytes;
  return text;
}

double mean_nll(const Sequence& sequence, std::int64_t first) {
  double sum = 0;
  const auto begin = static_cast<std::size_t>(first);
  for (std::size_t i = begin; i < sequence.tokens.size(); ++i) sum -= sequence.tokens[i].log_probability;
  return begin < sequence.tokens.size() ? sum / static_cast<double>(sequence.tokens.size() - begin) : none;
}

std::int64_t new_tokens_of(const Generation& generation) {
  std::int64_t tokens = 0;
  for (const Sequence& s : generation.sequences)
    tokens += static_cast<std::int64_t>(s.tokens.size()) - s.prompt_tokens;
  return tokens;
}

GenerateResults::GenerateResults(ResultFile& file, const GenerateDeck& deck, std::string space)
    : m_file(file),
      m_generate(deck.generate),
      m_seed(deck.sampling.seed),
      m_space(std::move(space)),
      m_cases(declare_cases(file)),
      m_generations(declare_generations(file)),
      m_tokens(declare_tokens(file)),
      m_logits(deck.generate.last_logits ? &declare_logits(file) : nullptr),
      m_measurements(file) {
  restore(deck);
}

void GenerateResults::restore(const GenerateDeck& deck) {
  m_file.restore();
  if (m_cases.rows() == 0) return;
  const std::size_t last = m_cases.rows() - 1;
  const auto [begin, end] = sequences_of(last);
  const Measurement outcome = outcome_of(m_cases, last);
  bool whole = !outcome.message.starts_with(check_was_interrupted) &&
               (outcome.status != CaseStatus::out_of_memory || deck.run.on_oom != OnOutOfMemory::abort);
  for (std::size_t row = begin; row < end; ++row)
    whole &= item<std::int8_t>(m_generations, "end", row) != static_cast<std::int8_t>(SequenceEnd::interrupted);
  if (whole) return;
  m_cases.keep_rows(last);
  m_generations.keep_rows(begin);
  if (m_logits) m_logits->keep_rows(begin);
  drop_rows(m_tokens.table(), "generation", begin);
  m_measurements.keep_cases(last);
}

// Rows of /generations: the first, and the one after the last.
std::pair<std::size_t, std::size_t> GenerateResults::sequences_of(std::size_t row) const {
  const auto case_of = [&](std::size_t i) { return item<std::int32_t>(m_generations, "case", i); };
  std::size_t begin = 0;
  while (begin < m_generations.rows() && std::cmp_less(case_of(begin), row)) ++begin;
  std::size_t end = begin;
  while (end < m_generations.rows() && std::cmp_equal(case_of(end), row)) ++end;
  return {begin, end};
}

FinishedGeneration GenerateResults::generation(std::size_t row) const {
  FinishedGeneration g{item<std::string>(m_cases, "prompt", row),
                       item<std::int64_t>(m_cases, "repeat", row),
                       outcome_of(m_cases, row).status,
                       {},
                       {}};
  const auto [begin, end] = sequences_of(row);
  for (std::size_t i = begin; i < end; ++i) {
    g.prompt_text = item<std::string>(m_generations, "prompt_text", i);
    g.texts.push_back(item<std::string>(m_generations, "text", i));
  }
  return g;
}

void GenerateResults::add_machine(const measure::MachineLimits& limits) {
  if (!m_measurements.has_machine()) m_measurements.add_machine(m_space, limits);
}

double share_of_limit(const Generation& generation) {
  const double bandwidth = generation.measurement.limits.bandwidth;
  if (generation.decode_seconds <= 0 || bandwidth <= 0) return none;
  return generation.decode_bytes_min / bandwidth / generation.decode_seconds;
}

void GenerateResults::add(const GenerationLabel& label, const Generation& g) {
  const Measurement& m = g.measurement;
  const std::int64_t prompt_tokens = g.sequences.empty() ? 0 : g.sequences.front().prompt_tokens;
  for (std::size_t row = 0; row < g.sequences.size(); ++row)
    add_sequence(label, g.sequences[row], static_cast<std::int64_t>(row));
  std::vector<Table::Cell> cells = outcome_cells(m, m_space);
  cells.insert(cells.end(), {{"op", "generate"},
                             {"prompt", label.prompt},
                             {"repeat", label.repeat},
                             {"dtype", name_of(m_generate.dtype)},
                             {"execution_space", m_space},
                             {"activations", name_of(m_generate.activations)},
                             {"kv_cache", name_of(m_generate.kv_cache)},
                             {"batch", m_generate.batch},
                             {"prompt_tokens", prompt_tokens},
                             {"new_tokens", new_tokens_of(g)},
                             {"prefill_tokens", g.prefill_tokens},
                             {"prefill_time", g.prefill_seconds},
                             {"prefill_rate", rate(g.prefill_tokens, g.prefill_seconds)},
                             {"decode_tokens", g.decode_tokens},
                             {"decode_time", g.decode_seconds},
                             {"decode_rate", rate(g.decode_tokens, g.decode_seconds)},
                             {"decode_bytes_min", g.decode_bytes_min},
                             {"bandwidth_limit", m.limits.bandwidth > 0 ? m.limits.bandwidth : none},
                             {"share_of_limit", share_of_limit(g)},
                             {"check_bytes", std::uint64_t(m.check_bytes)},
                             {"check_kernels", m.check_kernels},
                             {"max_logit_err", g.max_logit_err}});
  std::ranges::copy(disturbance_cells(m), std::back_inserter(cells));
  m_cases.append(cells);
  m_measurements.add_case(m, m_space);
  m_file.checkpoint();
}

void GenerateResults::add_sequence(const GenerationLabel& label, const Sequence& s, std::int64_t row) {
  const auto generation = static_cast<std::int64_t>(m_generations.rows());
  m_generations.append({{"case", static_cast<std::int64_t>(m_cases.rows())},
                        {"prompt", label.prompt},
                        {"adapter", label.adapter},
                        {"row", row},
                        {"seed", m_seed},
                        {"prompt_tokens", s.prompt_tokens},
                        {"new_tokens", static_cast<std::int64_t>(s.tokens.size()) - s.prompt_tokens},
                        {"end", sequence_end_names[static_cast<std::size_t>(s.end)]},
                        {"mean_nll", mean_nll(s, m_generate.score_prompt ? 1 : s.prompt_tokens)},
                        {"mean_nll_new", mean_nll(s, s.prompt_tokens)},
                        {"prompt_text", label.prompt_text},
                        {"text", new_text_of(s)}});
  if (m_logits) m_logits->append({{"last_logits", s.last_logits}});
  for (std::size_t i = 0; i < s.tokens.size(); ++i) {
    const auto position = static_cast<std::int64_t>(i);
    m_tokens.append({s.tokens[i], generation, position, position >= s.prompt_tokens});
  }
}

}  // namespace kformer::drivers
