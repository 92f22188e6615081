// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <limits>
#include <numeric>

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/generator.hpp"
#include "model/generator_sampling.hpp"

/// \file
/// Definitions of Generator's members.

namespace kformer {

template <class Exec, Scalar T>
Generator<Exec, T>::Generator(LlamaDecoder<Exec, T>& decoder, KvCache<Exec, T>& cache,
                              const GeneratorOptions& options, Ledger& ledger)
    : m_decoder(decoder), m_cache(cache), m_options(options), m_ledger(ledger.shared_from_this()) {
  m_options.prefill_chunk = std::min(options.prefill_chunk, decoder.options().max_positions);
  check();
  place(ledger);
}

template <class Exec, Scalar T>
void Generator<Exec, T>::check() const {
  const auto at_least = [](const std::string& what, std::int64_t value, std::int64_t wanted,
                           const char* cause = "") {
    if (value < wanted)
      throw DimensionMismatch("kformer::Generator: " + what + " is " + std::to_string(value) +
                              ", expected at least " + std::to_string(wanted) + cause);
  };
  const DecoderOptions& decoder = m_decoder.options();
  at_least("batch", m_options.batch, 1);
  at_least("max_new_tokens", m_options.max_new_tokens, 0);
  at_least("prefill_chunk", m_options.prefill_chunk, 1);
  at_least("repetition_window", m_options.repetition_window, 0);
  at_least("the decoder's max_rows", decoder.max_rows, m_options.batch, ", the batch");
  at_least("the decoder's max_rows", decoder.max_rows, m_options.prefill_chunk, ", the prefill_chunk");
  at_least("the decoder's max_logit_rows", decoder.max_logit_rows, m_options.batch, ", the batch");
  at_least("the cache's batch", m_cache.options().batch, m_options.batch, ", that of the generator");
  at_least("the cache's max_step_tokens", m_cache.options().max_step_tokens, m_options.prefill_chunk,
           ", the prefill_chunk");
}

template <class Exec, Scalar T>
void Generator<Exec, T>::place(Ledger& ledger) {
  const std::int64_t rows = m_decoder.options().max_rows, batch = m_options.batch;
  const std::int64_t scored = std::max(batch, m_decoder.options().max_logit_rows);
  const std::int64_t width = !penalised()                      ? 0
                             : m_options.repetition_window > 0 ? m_options.repetition_window
                                                               : m_decoder.options().max_positions;
  const std::size_t workspace_bytes = Impl::on_behalf_of("Generator", [&] {
    return sample_workspace_bytes<T>(Exec(), batch, m_decoder.config().vocab_size, penalised(),
                                     m_options.sampling);
  });
  Arena<memory_space> arena;
  arena.add(m_ids, rows);
  arena.add(m_positions, rows);
  arena.add(m_rows, scored);
  arena.add(m_tokens, batch);
  arena.add(m_history_lengths, batch);
  arena.add(m_adapters, m_decoder.options().adapters.empty() ? 0 : rows);
  arena.add(m_history, batch, width);
  arena.add(m_log_probabilities, scored);
  arena.add(m_lse, invariant() ? scored : 0);
  arena.add(m_workspace, workspace_bytes);
  m_block = arena.allocate(ledger, MemoryClass::workspace, "Generator");
}

// The copy may be made later: `from` is kept until the next fence.
template <class Exec, Scalar T>
void Generator<Exec, T>::upload(const Exec& exec, const Integers& to, std::vector<std::int32_t> from) {
  const auto& kept = m_uploads.emplace_back(std::move(from));
  const Kokkos::View<const std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(
      kept.data(), kept.size());
  transfer(exec, *m_ledger, first(to, kept.size()), host);
}

// What the host reads after the next fence: the array itself, if the host can reach it.
template <class Exec, Scalar T>
template <class V>
auto Generator<Exec, T>::download(const Exec& exec, const V& from) const {
  const auto host = Kokkos::create_mirror_view(Kokkos::HostSpace(), from);
  if constexpr (!Impl::host_reaches<memory_space>) transfer(exec, *m_ledger, host, from);
  return host;
}

template <class Exec, Scalar T>
void Generator<Exec, T>::fence(const Exec& exec, const char* label) {
  exec.fence(label);
  m_uploads.clear();
}

template <class Exec, Scalar T>
void Generator<Exec, T>::start(const Exec& exec, std::vector<std::vector<std::int32_t>> prompts,
                               const std::function<bool()>& stop, const std::vector<std::int32_t>& adapters) {
  const auto wrong = [](const std::string& sentence) {
    throw DimensionMismatch("kformer::Generator::start: " + sentence);
  };
  Impl::require_allocated("Generator::start", "the generator", m_block.data(), m_block.bytes());
  if (prompts.empty() || prompts.size() > static_cast<std::size_t>(m_options.batch))
    wrong(std::to_string(prompts.size()) + " prompts, the generator was made for 1 to " +
          std::to_string(m_options.batch));
  for (std::size_t s = 0; s < prompts.size(); ++s) {
    if (prompts[s].empty())
      wrong("prompt " + std::to_string(s) + " has no token; give the one that begins texts");
    const std::string tokens =
        "prompt " + std::to_string(s) + " has " + std::to_string(prompts[s].size()) + " tokens, ";
    const std::int64_t positions = m_decoder.options().max_positions, capacity = m_cache.options().capacity;
    if (prompts[s].size() > static_cast<std::size_t>(positions))
      wrong(tokens + "the decoder was made for " + std::to_string(positions) + " positions");
    if (capacity > 0 && prompts[s].size() > static_cast<std::size_t>(capacity))
      wrong(tokens + "the capacity of the cache is " + std::to_string(capacity) + "; make the cache larger");
  }
  require_adapters(adapters, prompts.size());
  if (m_decoder.borrows()) m_decoder.update_gains(exec);  // the model may have learnt
  m_sequences.clear();
  m_live.clear();
  m_final_logits.clear();
  m_computed_tokens = 0;
  m_chosen = !adapters.empty();
  const std::int32_t only = m_decoder.options().adapters.empty() ? -1 : 0;
  for (auto& prompt : prompts) {
    const std::int32_t adapter = m_chosen ? adapters[m_sequences.size()] : only;
    GeneratedSequence& sequence = m_sequences.emplace_back();
    sequence.tokens = std::move(prompt);
    sequence.adapter = adapter;
    sequence.prompt_tokens = static_cast<std::int64_t>(sequence.tokens.size());
    sequence.log_probabilities.assign(sequence.tokens.size(), std::numeric_limits<double>::quiet_NaN());
    if (m_options.max_new_tokens == 0 || is_full(sequence)) sequence.stopped = StopReason::length;
  }
  const auto reset_all = [&] {
    for (std::int64_t s = 0; s < m_options.batch; ++s) m_cache.reset(s);
  };
  bool goes_on = true;
  try {
    reset_all();
    for (std::size_t s = 0; s < m_sequences.size() && goes_on; ++s) {
      const std::size_t from = reuse_prefix(exec, s);
      require_room(s, from);
      goes_on = prefill(exec, s, from, stop);
    }
  } catch (...) {
    m_sequences.clear();  // none may go on half computed
    reset_all();
    throw;
  }
  for (std::size_t s = 0; s < m_sequences.size() && !goes_on; ++s) this->stop(static_cast<std::int64_t>(s));
  end_where_full();
  fence(exec, "kformer::Generator::start");
}

template <class Exec, Scalar T>
void Generator<Exec, T>::require_adapters(const std::vector<std::int32_t>& adapters,
                                          std::size_t prompts) const {
  const auto count = std::ssize(m_decoder.options().adapters);
  if (adapters.empty()) {
    if (count > 1)
      throw NotSupported("kformer::Generator::start: the decoder has " + std::to_string(count) +
                         " adapters; give the number of one for each prompt, or -1 for none");
    return;
  }
  if (adapters.size() != prompts)
    throw DimensionMismatch("kformer::Generator::start: " + std::to_string(adapters.size()) +
                            " adapters, expected " + std::to_string(prompts) + ", one for each prompt");
  for (std::size_t s = 0; s < adapters.size(); ++s)
    if (adapters[s] < -1 || adapters[s] >= count)
      throw NotSupported("kformer::Generator::start: prompt " + std::to_string(s) + " has adapter " +
                         std::to_string(adapters[s]) + ", the decoder has " + std::to_string(count) +
                         "; they count from 0, and -1 is none");
}

// That all of a prompt fits, whose first tokens the cache has: sequences may share its pages.
template <class Exec, Scalar T>
void Generator<Exec, T>::require_room(std::size_t prompt, std::size_t from) {
  std::vector<std::int64_t> new_tokens(static_cast<std::size_t>(m_cache.options().batch), 0);
  const std::size_t tokens = m_sequences[prompt].tokens.size();
  new_tokens[prompt] = static_cast<std::int64_t>(tokens - from);
  if (m_cache.has_room(new_tokens)) return;
  throw DimensionMismatch("kformer::Generator::start: prompt " + std::to_string(prompt) + " has " +
                          std::to_string(tokens) +
                          " tokens, the pages that other prompts leave in the cache hold fewer; make the cache "
                          "with more pages");
}

// Ends the sequences for whose next token the cache has no room; earlier sequences come first.
template <class Exec, Scalar T>
void Generator<Exec, T>::end_where_full() {
  const auto goes_on = [&](std::size_t s) { return m_sequences[s].stopped == StopReason::none; };
  for (std::size_t s = 0; s < m_sequences.size(); ++s)
    if (m_options.recompute && goes_on(s)) m_cache.reset(static_cast<std::int64_t>(s));
  std::vector<std::int64_t> wanted(static_cast<std::size_t>(m_cache.options().batch), 0);
  for (std::size_t s = 0; s < m_sequences.size(); ++s)
    if (goes_on(s))
      wanted[s] = std::ssize(m_sequences[s].tokens) - m_cache.length(static_cast<std::int64_t>(s));
  if (m_cache.has_room(wanted)) return;  // as nearly always, after one count of the pages
  std::vector<std::int64_t> new_tokens(wanted.size(), 0);
  for (std::size_t s = 0; s < m_sequences.size(); ++s) {
    if (!goes_on(s)) continue;
    new_tokens[s] = wanted[s];
    if (m_cache.has_room(new_tokens)) continue;
    new_tokens[s] = 0;
    m_sequences[s].stopped = StopReason::length;
  }
}

// Takes what another sequence has computed of the same tokens; returns how many.
template <class Exec, Scalar T>
std::size_t Generator<Exec, T>::reuse_prefix(const Exec& exec, std::size_t sequence) {
  if (!m_options.share_prefix) return 0;
  const auto& tokens = m_sequences[sequence].tokens;
  std::size_t best = 0, from = 0;
  for (std::size_t r = 0; r < sequence; ++r) {
    if (m_sequences[r].adapter != m_sequences[sequence].adapter) continue;
    const auto& other = m_sequences[r].tokens;
    const std::size_t most = std::min(tokens.size(), other.size()) - 1;
    std::size_t same = 0;
    while (same < most && tokens[same] == other[same]) ++same;
    // What follows the last of them must be the same, too, if its score is to be taken over.
    if (m_options.score_prompt && same > 0 && tokens[same] != other[same]) --same;
    // What a cache drops depends on all that it has seen, unless it is exact; and some caches cannot go back.
    const bool whole = same == other.size() - 1;
    if (same > best && (m_cache.exact() || whole) &&
        m_cache.can_truncate(static_cast<std::int64_t>(r), static_cast<std::int64_t>(same))) {
      best = same;
      from = r;
    }
  }
  if (best == 0) return 0;
  const auto to = static_cast<std::int64_t>(sequence);
  m_cache.fork(exec, static_cast<std::int64_t>(from), to);
  m_cache.truncate(to, static_cast<std::int64_t>(best));
  std::copy_n(m_sequences[from].log_probabilities.begin(), best + 1,
              m_sequences[sequence].log_probabilities.begin());
  return best;
}

// All tokens but the last, from number `from` on; false if `stop` wanted an end before that.
template <class Exec, Scalar T>
bool Generator<Exec, T>::prefill(const Exec& exec, std::size_t sequence, std::size_t from,
                                 const std::function<bool()>& stop) {
  GeneratedSequence& s = m_sequences[sequence];
  const std::size_t end = s.tokens.size() - 1;
  std::vector<std::int64_t> new_tokens(static_cast<std::size_t>(m_cache.options().batch), 0);
  while (from < end) {
    if (stop && stop()) return false;
    const std::size_t count = std::min(end - from, static_cast<std::size_t>(m_options.prefill_chunk));
    new_tokens[sequence] = static_cast<std::int64_t>(count);
    feed(exec, new_tokens, std::span(s.tokens).subspan(from, count));
    if (m_options.score_prompt) score_prompt(exec, s, from, count);
    from += count;
  }
  return true;
}

// The log-probabilities of the tokens that follow those of a chunk.
template <class Exec, Scalar T>
void Generator<Exec, T>::score_prompt(const Exec& exec, GeneratedSequence& sequence, std::size_t from,
                                      std::size_t count) {
  const auto most = static_cast<std::size_t>(m_decoder.options().max_logit_rows);
  for (std::size_t begin = 0; begin < count; begin += most) {
    const std::size_t rows = std::min(most, count - begin);
    std::vector<std::int32_t> which(rows);
    std::iota(which.begin(), which.end(), static_cast<std::int32_t>(begin));
    const auto next = sequence.tokens.begin() + static_cast<std::ptrdiff_t>(from + begin + 1);
    upload(exec, m_rows, std::move(which));
    const auto logits = m_decoder.logits(exec, first(m_rows, rows));
    upload(exec, m_rows, std::vector<std::int32_t>(next, next + static_cast<std::ptrdiff_t>(rows)));
    const auto scores = first(m_log_probabilities, rows);
    if (invariant())
      take_losses(exec, logits, first(m_rows, rows));
    else
      token_log_probabilities(exec, logits, first(m_rows, rows), scores);
    const auto host = download(exec, scores);
    fence(exec, "kformer::Generator::score_prompt");
    for (std::size_t i = 0; i < rows; ++i)
      sequence.log_probabilities[from + begin + 1 + i] = log_probability(host(i));
  }
}

// The hidden states of new tokens.
template <class Exec, Scalar T>
void Generator<Exec, T>::feed(const Exec& exec, std::span<const std::int64_t> new_tokens,
                              std::span<const std::int32_t> ids) {
  std::vector<std::int32_t> positions, adapters;
  for (std::size_t s = 0; s < new_tokens.size(); ++s)
    for (std::int64_t i = 0; i < new_tokens[s]; ++i) {
      positions.push_back(static_cast<std::int32_t>(m_cache.length(static_cast<std::int64_t>(s)) + i));
      adapters.push_back(m_sequences[s].adapter);
    }
  m_cache.begin_step(exec, new_tokens);
  try {
    upload(exec, m_ids, {ids.begin(), ids.end()});
    upload(exec, m_positions, std::move(positions));
    // A decoder without adapters has no array of choices, which can only be -1.
    const std::size_t chosen = m_chosen ? std::min(ids.size(), m_adapters.extent(0)) : 0;
    if (chosen > 0) upload(exec, m_adapters, std::move(adapters));
    m_decoder.step(exec, first(m_ids, ids.size()), first(m_positions, ids.size()), m_cache,
                   first(m_adapters, chosen));
    m_cache.end_step(exec);
  } catch (...) {
    m_cache.cancel_step();
    throw;
  }
  m_computed_tokens += static_cast<std::int64_t>(ids.size());
}

// Brings the cache to all tokens of a sequence but the last one.
template <class Exec, Scalar T>
void Generator<Exec, T>::reach_last(const Exec& exec, std::size_t sequence, const char* function) {
  const auto s = static_cast<std::int64_t>(sequence);
  const std::int64_t wanted = std::ssize(m_sequences[sequence].tokens) - 1, length = m_cache.length(s);
  if (length > wanted && !m_cache.can_truncate(s, wanted))
    throw NotSupported(
        std::string("kformer::Generator::") + function + ": the cache has seen the last token of sequence " +
        std::to_string(s) + " (after final_logits, a step that failed, or no_token), and a " +
        name_of(m_cache.options().kind).data() + " cache cannot go back; call start with its tokens");
  if (length > wanted) m_cache.truncate(s, wanted);
  prefill(exec, sequence, static_cast<std::size_t>(length), {});
}

// The logits after the last tokens of these sequences.
template <class Exec, Scalar T>
void Generator<Exec, T>::feed_last(const Exec& exec, std::vector<std::size_t> live, const char* function) {
  std::vector<std::int64_t> new_tokens(static_cast<std::size_t>(m_cache.options().batch), 0);
  std::vector<std::int32_t> ids, rows(live.size());
  m_live.clear();  // their logits are overwritten
  m_final_logits.clear();
  if (m_options.recompute)
    for (const std::size_t s : live) m_cache.reset(static_cast<std::int64_t>(s));
  for (const std::size_t s : live) {
    reach_last(exec, s, function);
    new_tokens[s] = 1;
    ids.push_back(m_sequences[s].tokens.back());
  }
  feed(exec, new_tokens, ids);
  std::iota(rows.begin(), rows.end(), 0);
  upload(exec, m_rows, std::move(rows));
  m_logits = m_decoder.logits(exec, first(m_rows, live.size()));
  m_live = std::move(live);
}

template <class Exec, Scalar T>
bool Generator<Exec, T>::running() const {
  return std::ranges::any_of(m_sequences,
                             [](const GeneratedSequence& s) { return s.stopped == StopReason::none; });
}

template <class Exec, Scalar T>
void Generator<Exec, T>::step(const Exec& exec) {
  std::vector<std::size_t> live;
  for (std::size_t s = 0; s < m_sequences.size(); ++s)
    if (m_sequences[s].stopped == StopReason::none) live.push_back(s);
  if (live.empty()) return m_live.clear();
  feed_last(exec, std::move(live), "step");
  sample_tokens(exec);
  const auto host_tokens = download(exec, first(m_tokens, m_live.size()));
  const auto host_log_probabilities = download(exec, first(m_log_probabilities, m_live.size()));
  fence(exec, "kformer::Generator::step");
  for (std::size_t i = 0; i < m_live.size(); ++i) {
    GeneratedSequence& s = m_sequences[m_live[i]];
    if (host_tokens(i) < 0) {
      s.stopped = StopReason::no_token;
      continue;
    }
    s.tokens.push_back(host_tokens(i));
    s.log_probabilities.push_back(log_probability(host_log_probabilities(i)));
    if (std::ranges::count(m_options.end_of_text, host_tokens(i)) > 0)
      s.stopped = StopReason::end_of_text;
    else if (s.new_tokens() >= m_options.max_new_tokens || is_full(s))
      s.stopped = StopReason::length;
  }
  end_where_full();
}

template <class Exec, Scalar T>
void Generator<Exec, T>::stop(std::int64_t sequence) {
  if (sequence < 0 || sequence >= static_cast<std::int64_t>(m_sequences.size()))
    throw NotSupported("kformer::Generator::stop: there is no sequence " + std::to_string(sequence) +
                       " among the " + std::to_string(m_sequences.size()) + " that were started");
  StopReason& stopped = m_sequences[static_cast<std::size_t>(sequence)].stopped;
  if (stopped == StopReason::none) stopped = StopReason::caller;
}

template <class Exec, Scalar T>
std::vector<std::vector<double>> Generator<Exec, T>::step_logits(const Exec& exec) const {
  const auto host = download(exec, m_logits);
  exec.fence("kformer::Generator::step_logits");
  std::vector<std::vector<double>> values(m_sequences.size());
  for (std::size_t i = 0; i < m_live.size(); ++i)
    for (std::size_t v = 0; v < host.extent(1); ++v)
      values[m_live[i]].push_back(static_cast<double>(static_cast<C>(host(i, v))));
  return values;
}

template <class Exec, Scalar T>
std::vector<std::vector<double>> Generator<Exec, T>::final_logits(const Exec& exec) {
  if (!m_final_logits.empty()) return m_final_logits;  // the cache may not be able to go back
  std::vector<std::size_t> all(m_sequences.size());
  std::iota(all.begin(), all.end(), std::size_t(0));
  feed_last(exec, std::move(all), "final_logits");
  return m_final_logits = step_logits(exec);
}

}  // namespace kformer
