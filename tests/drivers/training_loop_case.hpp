// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/hdf5_reader.hpp"
#include "io/scratch_directory.hpp"
#include "kformer/core/error.hpp"
#include "train/training_loop.hpp"

/// \file
/// A training without a model, for tests of its loop.

namespace kformer::Testing {

using namespace kformer::drivers;

inline constexpr std::int64_t seq_len = 4;
inline constexpr std::chrono::milliseconds time_to_save{5};

// Sequence i has i, or first + i, as its tokens, and i + 1 targets.
class Numbers final : public SequenceSource {
 public:
  explicit Numbers(std::int64_t size, std::int64_t together = 1, std::int64_t first = 0)
      : m_size(size), m_together(together), m_first(first) {}
  std::int64_t size() const override { return m_size; }
  std::int64_t together() const override { return m_together; }
  void read(std::int64_t index, TokenSequence& sequence) const override {
    sequence.ids.assign(seq_len, static_cast<std::int32_t>(m_first + index));
    sequence.targets.assign(seq_len, -100);
    for (std::int64_t i = 0; i <= index && i < seq_len; ++i) sequence.targets[static_cast<std::size_t>(i)] = 0;
    sequence.starts = {0};
  }
  std::string fingerprint() const override { return "numbers"; }
  std::string description() const override { return "numbers"; }

 private:
  std::int64_t m_size, m_together, m_first;
};

// Logits of the tokens of bytes: 1 of these letters, `others` of the others.
inline std::vector<double> only(const std::string& letters, double others = 0) {
  std::vector<double> logits(258, others);
  for (const char letter : letters) logits[static_cast<unsigned char>(letter)] = 1;
  return logits;
}

// Learns nothing, and writes down what it is asked to do: a step by its number; e, t, c with the steps done before an
// evaluation, a token of a text, a checkpoint; f for the end of the last checkpoint.
class Diary final : public Learner {
 public:
  std::string log;
  std::vector<std::int32_t> read;                // first token of every sequence of a step
  std::vector<double> losses{9, 8, 7, 6, 5, 4};  // of the evaluations, in turn
  std::vector<std::pair<std::string, CheckpointColumns>> saved;
  std::int64_t steps = 0;
  std::int64_t skips = -1;                                           // this step
  std::int64_t diverges = std::numeric_limits<std::int64_t>::max();  // from this step on
  bool disk_is_full = false;
  bool by_name = false;                    // whether the loss of a sequence is its number
  std::vector<double> logits = only("x");  // of the next token of any text

  StepReport step(std::span<const TokenSequence> sequences, const Objective& objective) override {
    LogProbabilities logp;
    for (const TokenSequence& s : sequences) {
      logp.values.push_back(logp_of(s));
      logp.offsets.push_back(std::ssize(logp.values));
    }
    StepReport report = step(sequences);
    report.loss = objective(0, logp).loss;
    return report;
  }
  LogProbabilities log_probabilities(std::span<const TokenSequence> sequences) override {
    note(fmt::format("p{}", steps));
    LogProbabilities logp;
    for (const TokenSequence& s : sequences) {
      logp.values.push_back(logp_of(s));
      logp.offsets.push_back(std::ssize(logp.values));
    }
    return logp;
  }
  LogProbabilities reference_log_probabilities(std::span<const TokenSequence> sequences) override {
    note(fmt::format("r{}", steps));
    LogProbabilities logp;
    for (std::int64_t i = 1; i <= std::ssize(sequences); ++i) {
      logp.values.push_back(0);
      logp.offsets.push_back(i);
    }
    return logp;
  }
  void keep_reference() override { note(fmt::format("k{}", steps)); }
  std::vector<GeneratedSequence> sample(std::span<const std::vector<std::int32_t>> prompts,
                                        std::int64_t first_stream) override {
    note(fmt::format("s{}", first_stream));
    return std::vector<GeneratedSequence>(prompts.size());
  }
  StepReport step(std::span<const TokenSequence> sequences) override {
    note(std::to_string(steps));
    for (const TokenSequence& s : sequences) read.push_back(s.ids.front());
    StepReport report;
    report.step = steps++;
    report.loss = 1;
    report.tokens = 3;
    report.computed.add(std::ssize(sequences), seq_len);
    report.skipped = report.step == skips || report.step >= diverges;
    if (report.step >= diverges) report.loss = std::numeric_limits<double>::quiet_NaN();
    return report;
  }
  double evaluate(std::span<const TokenSequence> sequences) override {
    note(fmt::format("e{}", steps));
    if (by_name) {
      double sum = 0, targets = 0;
      for (const TokenSequence& s : sequences) {
        const auto here = static_cast<double>(std::ranges::count(s.targets, 0));
        sum += here * s.ids.front();
        targets += here;
      }
      return sum / targets;
    }
    return losses.at(m_evaluations++);
  }
  Logits logits_after(std::span<const std::vector<std::int32_t>> texts) override {
    note(fmt::format("t{}", steps));
    return std::vector(texts.size(), logits);
  }
  void save_checkpoint(const std::string& text, CheckpointColumns columns) override {
    if (disk_is_full) throw FileError("no space");
    note(fmt::format("c{}", steps));
    saved.emplace_back(text, std::move(columns));
    std::this_thread::sleep_for(time_to_save);
  }
  void finish_checkpoints() override { note("f"); }
  std::int64_t steps_done() const override { return steps; }
  TrainerState state() const override { return {.steps = steps}; }
  void load(const Checkpoint&) override { throw std::logic_error("load"); }
  void load(const AdapterCheckpoint&) override { throw std::logic_error("load"); }
  void initialise_adapters(std::int64_t) override { throw std::logic_error("initialise_adapters"); }
  void save_gguf_adapter(const std::filesystem::path&) override { throw std::logic_error("save_gguf_adapter"); }
  void save_adapter(const std::filesystem::path&, const AdapterDescription&) override {
    throw std::logic_error("save_adapter");
  }
  void initialise(const InitTable&) override { throw std::logic_error("initialise"); }
  void prepare() override { throw std::logic_error("prepare"); }
  void restore(const TrainingCheckpoint&, const TrainerState&) override { throw std::logic_error("restore"); }
  Logits logits_of(const std::vector<std::int32_t>&) override { throw std::logic_error("logits_of"); }
  void merge_adapters() override { throw std::logic_error("merge_adapters"); }
  void save_weights(const std::filesystem::path&) override { throw std::logic_error("save_weights"); }

 private:
  // A completion grows likelier with each step if its number is even.
  double logp_of(const TokenSequence& s) const {
    if (steps >= diverges) return std::numeric_limits<double>::quiet_NaN();
    return s.ids.front() % 2 == 0 ? static_cast<double>(steps) : -s.ids.front();
  }
  void note(const std::string& what) { log += (log.empty() ? "" : " ") + what; }
  std::size_t m_evaluations = 0;
};

// What a run knows of `steps` steps before it.
inline TrainingHistory past(std::int64_t steps) {
  TrainingHistory history;
  for (std::int64_t i = 0; i < steps; ++i) {
    history.steps.emplace_back();
    history.steps.back().step = i;
  }
  return history;
}

/// A training of six steps of two sequences.
struct LoopCase {
  LoopCase() {
    deck.batch = {.seq_len = seq_len, .micro_batch = 2, .sequences = 2};
    data.train = std::make_unique<Numbers>(20);
    data.validation = std::make_unique<Numbers>(2);
  }

  void make_pairs() {
    deck.objective = {ObjectiveKind::dpo, PreferenceKind::sigmoid, 0.5, 0};
    deck.batch = {.seq_len = seq_len, .micro_batch = 4, .sequences = 4};
    data.train = std::make_unique<Numbers>(20, 2);
  }
  void evaluate_every(std::int64_t steps) { deck.evaluation = {.every_steps = steps}; }
  void save_every(std::int64_t steps) { deck.checkpoint = {.folder = "nowhere", .every_steps = steps}; }
  void write_every(std::int64_t steps, SamplesTable table = {.prompts = {"a"}, .max_new_tokens = 1}) {
    deck.samples = std::move(table);
    deck.samples->every_steps = steps;
    LanguageModelTable model;
    model.vocab_size = 258;
    encoder =
        std::make_unique<PromptEncoder>(open_tokenizer(TokenizerFormat::byte, {}), TokenizerTable(), model);
    texts = std::make_unique<TextWriter>(deck, *encoder);
  }

  TrainingEnd run(TrainingHistory history = {}) {
    ResultFile file(directory / "run.h5", {.overwrite = true});
    const auto objective = own_objective ? std::move(own_objective) : make_objective(deck);
    TrainResults results(file, "serial", objective->figures());
    if (objective->needs_first_weights())
      objective->begin(learner, data, {learner.steps, steps}, [] { return false; });
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::tmpfile(), &std::fclose);
    Progress progress({steps, 8, 1, 1, "0 B"}, out.get());
    TrainingLoop loop{.deck = &deck,
                      .ranks = &ranks,
                      .grid = &grid,
                      .data = &data,
                      .steps = steps,
                      .least_scale = 1,
                      .run = {},
                      .settings = {},
                      .objective = objective.get(),
                      .learner = &learner,
                      .texts = texts.get(),
                      .ledger = ledger.get(),
                      .results = &results,
                      .progress = &progress,
                      .stop = [&] { return stops() ? std::optional<std::string>("time") : std::nullopt; },
                      .profile = {}};
    if (deck.profile.kernels)
      loop.profile = [&](const std::function<void()>& step) {
        profiled.push_back(learner.steps);
        step();
      };
    const TrainingEnd end = run_training(loop, std::move(history));
    file.finish();
    BOOST_REQUIRE(std::fseek(out.get(), 0, SEEK_SET) == 0);
    said.clear();
    for (int c = std::fgetc(out.get()); c != EOF; c = std::fgetc(out.get())) said += static_cast<char>(c);
    return end;
  }

  bool stops() const {
    return learner.steps == stop_after || (!stop_at.empty() && learner.log.ends_with(stop_at));
  }

  // What the only step writes.
  std::vector<std::string> texts_of_a_step(const SamplesTable& table) {
    write_every(0, table);
    learner.steps = steps - 1;
    run(past(steps - 1));
    return Hdf5Reader(directory / "run.h5").texts("samples/text");
  }

  std::vector<double> numbers(const std::string& column) const {
    return Hdf5Reader(directory / "run.h5").numbers(column);
  }

  ScratchDirectory directory;
  TrainDeck deck;
  TrainingData data;
  Diary learner;
  int argc = 0;
  char** argv = nullptr;
  Ranks ranks{argc, argv};
  RankGrid grid{std::make_shared<LoneCommunicator>(), {}};
  std::unique_ptr<PromptEncoder> encoder;
  std::unique_ptr<TextWriter> texts;
  std::int64_t steps = 6, stop_after = -1;
  std::string stop_at;                               // after this part of the diary
  std::unique_ptr<TrainingObjective> own_objective;  // of one run, in place of that of the deck
  std::string said;                                  // by the last run
  std::vector<std::int64_t> profiled;
};

using Doubles = std::vector<double>;

}  // namespace kformer::Testing
