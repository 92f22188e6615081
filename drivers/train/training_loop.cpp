// SPDX-License-Identifier: MIT
#include "train/training_loop.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>

namespace kformer::drivers {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Between two writings of the result file, which is written as a whole.
constexpr double result_interval_s = 30;

class TrainingRun {
 public:
  TrainingRun(const TrainingLoop& loop, TrainingHistory history)
      : m_loop(loop),
        m_deck(*loop.deck),
        m_history(std::move(history)),
        m_order(m_deck, *loop.data->train),
        m_first(done()) {}

  TrainingEnd run() {
    m_loop.results->add_memory(*m_loop.ledger, done(), "begin");
    // A run that was stopped may not have done what follows its last step.
    if (done() > 0) after_step();
    while (!ends() && !stops()) {
      step();
      after_step();
      if (due(m_deck.checkpoint) && !ends() && !m_end.stopped) m_end.checkpoint_wait += save();
      // After the first step there is something to read.
      if (m_end.steps == 1 || seconds_since(m_written) > result_interval_s) write_results();
    }
    m_loop.progress->finish();
    if (stops_early())
      m_loop.progress->say(fmt::format("early stop after step {}: the evaluations no longer improve", done()));
    const auto end = Clock::now();
    if (m_deck.checkpoint && !m_saved) save();
    if (m_deck.checkpoint) m_loop.learner->finish_checkpoints();
    m_end.last_checkpoint_wait = seconds_since(end);
    m_loop.results->add_memory(*m_loop.ledger, done(), "end");
    if (!m_end.stopped) m_end.failure = failure_text(m_history.steps, m_loop.least_scale);
    return m_end;
  }

 private:
  std::int64_t done() const { return m_loop.learner->steps_done(); }
  bool stops_early() const {
    return m_deck.early_stop && drivers::stops_early(*m_deck.early_stop, m_history.evaluations);
  }
  bool ends() const { return done() == m_loop.steps || stops_early(); }
  bool stops() {
    // What several steps learn from is not saved.
    if (!m_end.stopped && done() % m_loop.objective->updates() == 0) m_end.stopped = m_loop.stop();
    return m_end.stopped.has_value();
  }
  template <class SomeTable>
  bool due(const std::optional<SomeTable>& table) const {
    return table && table->every_steps > 0 && done() % table->every_steps == 0;
  }

  void after_step() {
    if (done() == m_loop.steps || due(m_deck.evaluation)) evaluate();
    if (!m_end.stopped && (ends() || due(m_deck.samples))) write_texts();
  }

  void step() {
    const auto begin = Clock::now();
    const std::int64_t sequences = m_deck.batch.sequences,
                       first = done() / m_loop.objective->updates() * sequences;
    const LeafShares shares = micro_batches_of_rank(m_deck);
    const int rank = m_loop.grid->place().data;
    const auto sequence = [&](std::int64_t leaf) {
      return first + std::min(sequences, leaf * m_deck.batch.micro_batch);
    };
    const SequenceSource& data = *m_loop.data->train;
    m_indices.clear();
    m_places.clear();
    for (std::int64_t k = 0; k < shares.count(rank); ++k) {
      const std::int64_t leaf = shares.leaf(rank, k);
      for (std::int64_t i = sequence(leaf); i < sequence(leaf + 1); ++i) {
        m_indices.push_back(m_order.at(i));
        m_places.push_back(i - first);
      }
    }
    const SequenceBatch batch = read(data, sequences);
    StepRecord record;
    const auto run = [&] {
      static_cast<ObjectiveStep&>(record) = m_loop.objective->step(*m_loop.learner, batch);
    };
    // The first step of a run also does what is done once; a single one is better than none.
    if (m_loop.profile && done() == std::min(m_first + 1, m_loop.steps - 1)) {
      m_loop.profile(run);
      // The fences around its kernels take time that no other step needs.
      record.time = std::numeric_limits<double>::quiet_NaN();
    } else {
      run();
      record.time = seconds_since(begin);
      m_end.computed += record.computed;
      m_end.seconds += record.time;
    }
    ++m_end.steps;
    m_end.skipped += record.skipped;
    m_history.steps.push_back(record);
    m_saved = false;
    m_loop.results->add(record);
    m_loop.progress->step(record);
    check_sampler(record);
    if (done() == m_first + 1) m_loop.results->add_memory(*m_loop.ledger, done(), "first step");
  }

  // With batch invariance a sampler has the bits of the trainer. If not, kernels are wrong, and ratios are.
  void check_sampler(const StepRecord& record) {
    const auto unequal = record.figures.find("unequal_logp");
    if (!m_deck.precision.batch_invariant || unequal == record.figures.end() || !(unequal->second > 0)) return;
    if (m_end.unequal++ > 0) return;
    m_loop.progress->say(fmt::format(
        "warning: step {}: {} log-probabilities of the sampler are not, to the bit, those of the trainer, in "
        "spite of precision.batch_invariant; ratios of the first update are not exactly 1. Please report it",
        record.step + 1, unequal->second));
  }

  // In parts, so that memory does not grow with the data.
  void evaluate() {
    if (!m_deck.evaluation || has_at_this_step(m_history.evaluations)) return;
    const auto begin = Clock::now();
    const SequenceSource& data = *m_loop.data->validation;
    const std::int64_t wanted = m_deck.evaluation->sequences;
    const std::int64_t count = wanted > 0 ? std::min(wanted, data.size()) : data.size();
    const std::int64_t part = m_deck.batch.micro_batch;
    PartialMean loss;
    PartialFigures figures;
    // One part for each model, in turns; all ranks add up all of them in their order.
    for (std::int64_t first = 0; first < count; first += part * m_loop.grid->shape().data) {
      if (stops()) return;
      const std::int64_t own = std::min(count, first + part * m_loop.grid->place().data);
      const std::int64_t size = std::min(part, count - own);
      m_indices.resize(static_cast<std::size_t>(size));
      m_places.resize(m_indices.size());
      std::iota(m_indices.begin(), m_indices.end(), own);
      std::iota(m_places.begin(), m_places.end(), 0);
      Judgement judgement;
      if (!m_indices.empty()) judgement = m_loop.objective->judge(*m_loop.learner, read(data, size));
      for (const Judgement& one : all_of(judgement)) {
        loss += one.loss;
        for (const auto& [name, figure] : one.figures) figures[name] += figure;
      }
    }
    EvaluationRecord record{done(), loss.mean(), seconds_since(begin), {}};
    for (const auto& [name, figure] : figures) record.figures[name] = figure.mean();
    m_saved = false;
    m_loop.results->add(record);
    m_loop.progress->say(fmt::format("evaluation after step {}: loss {:.4f}{} of {} {} in {:.3g} s",
                                     record.step, record.loss, figures_text(record.figures), loss.count,
                                     data.prompts() != nullptr ? "completions"
                                     : data.together() == 2    ? "pairs"
                                                               : "tokens",
                                     record.time));
    m_history.evaluations.push_back(std::move(record));
  }

  // The judgements of all ranks. Each knows what its objective measures. Of ranks that divide a model, its layers or
  // tokens, which judge the same, one counts.
  std::vector<Judgement> all_of(const Judgement& own) {
    if (m_loop.ranks->size() == 1) return {own};
    const GridIndex& place = m_loop.grid->place();
    const bool counts = place.tensor == 0 && place.context == 0 && place.pipeline == 0;
    std::vector<double> numbers;
    const auto add = [&](const PartialMean& part) {
      numbers.push_back(counts ? part.sum : 0);
      numbers.push_back(counts ? part.count : 0);
    };
    add(own.loss);
    for (const FigureColumn& figure : m_loop.objective->figures()) {
      const auto found = own.figures.find(figure.name);
      add(found == own.figures.end() ? PartialMean() : found->second);
    }
    const auto all = m_loop.ranks->gather(numbers, "an evaluation");
    std::vector<Judgement> judgements;
    const auto take = [](auto& at) {
      const double sum = *at++, count = *at++;
      return PartialMean{sum, count};
    };
    for (auto at = all.begin(); at != all.end();) {
      Judgement& one = judgements.emplace_back();
      one.loss = take(at);
      for (const FigureColumn& figure : m_loop.objective->figures()) one.figures[figure.name] = take(at);
    }
    return judgements;
  }

  // Those of m_indices, which are all or some of a step.
  SequenceBatch read(const SequenceSource& data, std::int64_t in_step) {
    m_batch.resize(m_indices.size());
    for (std::size_t i = 0; i < m_indices.size(); ++i) data.read(m_indices[i], m_batch[i]);
    return {m_batch, m_indices, m_places, in_step};
  }

  void write_texts() {
    if (m_loop.texts == nullptr || has_at_this_step(m_history.samples)) return;
    std::vector<SampleRecord> samples = m_loop.texts->write(*m_loop.learner, [this] { return stops(); });
    if (m_end.stopped) return;
    m_saved = false;
    for (SampleRecord& sample : samples) {
      m_loop.results->add(sample);
      m_loop.progress->say(fmt::format("sample after step {}: {}|{}", sample.step, sample.prompt, sample.text));
      m_history.samples.push_back(std::move(sample));
    }
  }

  // A run that was resumed at its end may have done it.
  template <class Record>
  bool has_at_this_step(const std::vector<Record>& records) const {
    return !records.empty() && records.back().step == done();
  }

  // Returns the seconds until the next step can begin.
  double save() {
    const auto begin = Clock::now();
    if (m_loop.ranks->is_first())
      m_loop.learner->save_checkpoint(checkpoint_text({m_loop.run, m_loop.settings, m_loop.learner->state()}),
                                      checkpoint_columns(m_history));
    else
      m_loop.learner->save_checkpoint("", {});
    m_saved = true;
    const CheckpointWait wait{done(), seconds_since(begin)};
    ++m_end.checkpoints;
    m_loop.results->add(wait);
    m_loop.results->add_memory(*m_loop.ledger, done(), "checkpoint");
    return wait.waited;
  }

  void write_results() {
    m_loop.results->checkpoint();
    m_written = Clock::now();
  }

  const TrainingLoop& m_loop;
  const TrainDeck& m_deck;
  TrainingHistory m_history;
  TrainingOrder m_order;
  std::int64_t m_first;
  // Whether a checkpoint has all of the history. A run that stops before its first step saves one too: the next finds
  // its result file, and a checkpoint to continue from.
  bool m_saved = m_first > 0;
  std::vector<TokenSequence> m_batch;
  std::vector<std::int64_t> m_indices, m_places;  // of m_batch in its set, and in the step
  TrainingEnd m_end;
  Clock::time_point m_written = Clock::now();
};

}  // namespace

LeafShares micro_batches_of_rank(const TrainDeck& deck) {
  const BatchTable& b = deck.batch;
  const std::int64_t leaves = (b.sequences + b.micro_batch - 1) / b.micro_batch;
  if (!deck.parallel) return {leaves};
  return {leaves, static_cast<int>(deck.parallel->data), deck.parallel->zero == 2};
}

TrainingEnd run_training(const TrainingLoop& loop, TrainingHistory history) {
  return TrainingRun(loop, std::move(history)).run();
}

}  // namespace kformer::drivers
