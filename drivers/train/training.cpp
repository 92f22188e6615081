// SPDX-License-Identifier: MIT
#include "train/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "app/communication.hpp"
#include "app/memory/scratch.hpp"
#include "app/program.hpp"
#include "app/report.hpp"
#include "app/say.hpp"
#include "app/stop.hpp"
#include "learner/data_parallel.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/kernel_names.hpp"
#include "measure/memory_available.hpp"
#include "measure/process/core_wait.hpp"
#include "measure/process/process_memory.hpp"
#include "measure/spaces.hpp"
#include "sweep/noise.hpp"
#include "train/training_loop.hpp"
#include "train/training_plan.hpp"

namespace kformer::drivers {

namespace {

namespace fs = std::filesystem;

std::optional<std::size_t> budget_of(const TrainDeck& deck) { return deck.memory.budget_bytes(); }

// Otherwise this run might resume from checkpoints of another one.
std::vector<fs::path> checkpoints_of_another_run(const TrainDeck& deck) {
  if (!deck.checkpoint || deck.checkpoint->resume) return {};
  auto files = training_checkpoints_in(deck.checkpoint->folder);
  if (!files.empty() && !deck.output.overwrite)
    throw FileError(
        fmt::format("'{}' has checkpoints of an earlier run; checkpoint.resume = true continues it, "
                    "output.overwrite = true removes them",
                    deck.checkpoint->folder));
  return files;
}

// The first tokens of the first sequence, of validation if there is one. What follows its last target fills it up.
std::vector<std::int32_t> text_to_compare(const TrainingData& data) {
  TokenSequence sequence;
  (data.validation ? data.validation : data.train)->read(0, sequence);
  std::vector<std::int32_t>& targets = sequence.targets;
  while (!targets.empty() && targets.back() == CrossEntropyOptions().ignore_index) targets.pop_back();
  const std::size_t used = targets.empty() ? sequence.ids.size() : targets.size();
  sequence.ids.resize(std::min<std::size_t>(64, used));
  return sequence.ids;
}

RankGrid grid_for(const TrainDeck& deck, const Ranks& ranks) {
  return grid_of(ranks.world(), deck.parallel ? &*deck.parallel : nullptr);
}

// Of ranks that divide a model, the first one counts.
SequenceRanks sequence_ranks(Ranks& ranks, const RankGrid& grid) {
  if (ranks.size() == 1) return {};
  const auto count = static_cast<std::size_t>(grid.shape().data),
             each = static_cast<std::size_t>(ranks.size()) / count;
  return {grid.place().data, grid.shape().data, [&ranks, count, each](std::span<const double> own) {
            const std::vector<double> all = ranks.gather(own, "an objective");
            std::vector<double> of_models;
            for (std::size_t model = 0; model < count; ++model) {
              const auto first = all.begin() + static_cast<std::ptrdiff_t>(model * each * own.size());
              of_models.insert(of_models.end(), first, first + std::ssize(own));
            }
            return of_models;
          }};
}

// The plan of the rank that has least room.
std::size_t least_along(const RankGrid& grid, std::size_t own) {
  auto least = static_cast<double>(own);
  for (const GridAxis axis : {GridAxis::tensor, GridAxis::context})
    least = std::ranges::min(gather(*grid.along(axis), std::span(&least, 1), "a schedule of recomputation"));
  return static_cast<std::size_t>(least);
}

void share_steps(const RankGrid& grid, const TrainDeck& deck, LearnerTask& task) {
  if (deck.parallel) share_among(grid, *deck.parallel, micro_batches_of_rank(deck).leaves, task);
}

/// A training with its result file.
class Training {
 public:
  Training(const TrainDeck& deck, const std::string& space, std::optional<TrainingCheckpoint> checkpoint,
           ResultFile& file, Ranks& ranks)
      : m_deck(deck),
        m_ranks(ranks),
        m_grid(grid_for(deck, ranks)),
        m_space(space),
        m_stop(deck.run.walltime_s),
        m_objective(make_objective(deck, sequence_ranks(ranks, m_grid))),
        m_results(file, space, m_objective->figures()) {
    checkpoints_of_another_run(deck);
    require_policy(space, deck.memory.recompute);
    m_plan = plan_training(deck);
    m_ranks.require_same(contents_of(m_plan));
    share_steps(m_grid, deck, m_plan.task);
    if (m_plan.task.checkpoints)
      m_plan.task.checkpoints->agree = [this] { m_ranks.await_writers("a checkpoint"); };
    fmt::print("{}", prose(stdout, plan_text(deck, m_plan), plan_indent));
    m_objective->open(m_plan.data, m_plan.encoder.get());
    if (deck.samples) m_texts = std::make_unique<TextWriter>(deck, *m_plan.encoder);
    const std::size_t per_thread = m_plan.scratch_per_thread();
    decide(forecast_scratch(space, per_thread));
    measure::AllocationWitness& witness = measure::AllocationWitness::install();
    reserve_scratch(space, per_thread);
    // Takes seconds: what refuses the deck comes first.
    measure_machine();
    say_memory();
    measure::reset_process_peak();
    witness.reset_peaks();
    begin(std::move(checkpoint));
  }

  int run(const OutputFolders& folders) {
    // Now nothing can refuse the training any more.
    if (m_ranks.is_first())
      for (const fs::path& file : checkpoints_of_another_run(m_deck)) remove_training_checkpoint(file);
    const measure::KernelNames names;
    Progress progress(scale(), stdout);
    TrainingLoop loop{.deck = &m_deck,
                      .ranks = &m_ranks,
                      .grid = &m_grid,
                      .data = &m_plan.data,
                      .steps = m_plan.steps,
                      .least_scale = least_scale(),
                      .run = identity_of(m_deck, m_plan),
                      .settings = settings_of(m_deck),
                      .objective = m_objective.get(),
                      .learner = m_learner.get(),
                      .texts = m_texts.get(),
                      .ledger = m_ledger.get(),
                      .results = &m_results,
                      .progress = &progress,
                      .stop = [&] { return reason_to_stop(); },
                      .profile = {}};
    if (m_deck.profile.kernels) loop.profile = [&](const auto& step) { profile(step); };
    const measure::CoreWatch cores;
    const TrainingEnd end = run_training(loop, std::move(m_history));
    // Several ranks are a load for each other.
    if (m_ranks.size() == 1) m_summary.measurement.core_wait_share = cores.share();
    if (m_deck.profile.kernels && !m_profiled)
      fmt::print("note: no step was profiled: the run ended before the second one\n");
    if (!end.stopped) {
      write(folders);
      m_ranks.await_writers("the model");
    }
    summarise(end, names.text());
    const int code = close(end);
    m_ranks.await_writers("the end");
    return code;
  }

 private:
  // All ranks stop together.
  std::optional<std::string> reason_to_stop() { return m_ranks.agreed(m_stop.reason()); }

  // The adapter first: the model takes it up.
  void write(const OutputFolders& folders) {
    // Ranks that have parts of the first model take part; those that divide its tokens have the same.
    if (m_grid.place().data > 0) return;
    const bool has_parts = m_grid.place().context == 0;
    if (folders.adapter) {
      folders.adapter->write_adapter(*m_learner, {.base_model = m_base}, m_deck.output.adapter_gguf);
      fmt::print("adapter: {}\n", folders.adapter->path().string());
    } else if (!m_deck.output.adapter.empty() && has_parts) {
      m_learner->save_adapter({}, {});
    }
    if (m_plan.task.saves_weights && m_deck.adapter) merge();
    if (folders.model) {
      folders.model->write(*m_learner, m_plan.model, m_plan.task.dtype, m_plan.tokenizer_files);
      fmt::print("model: {}\n", folders.model->path().string());
    } else if (m_plan.task.saves_weights && has_parts) {
      m_learner->save_weights({});
    }
  }

  // Says how the logits of a text change.
  void merge() {
    const std::vector<std::int32_t> text = text_to_compare(m_plan.data);
    const Logits live = m_learner->logits_of(text);
    m_learner->merge_adapters();
    const LogitDifference found = difference(live, m_learner->logits_of(text));
    fmt::print("{}", prose(stdout, report_text("merged", found)));
    if (m_ranks.is_first()) write_difference(m_results.file(), "merged", found);
  }

  void measure_machine() {
    if (!m_deck.profile.machine_limits) return;
    m_noise.begin({m_space}, [&](const auto&, const auto& limits) { m_machine = limits; });
    m_limits = measure::case_limits(m_space, m_plan.task.dtype, 0);
    m_results.add_machine(*m_machine);
    fmt::print("{}\n", measure::describe(m_space, *m_machine));
  }

  // The clock of a processor wanders, so that one sample may be less than a step reaches.
  void measure_again() {
    if (!m_limits) return;
    const measure::CaseLimits after = measure::case_limits(m_space, m_plan.task.dtype, 0);
    if (m_ranks.size() == 1)
      m_summary.measurement.limits_change = change_between({m_limits->flop_rate, 0}, {after.flop_rate, 0});
    m_limits = measure::larger_of(*m_limits, after);
  }

  double flop_rate_limit() const {
    return m_limits ? m_limits->flop_rate * m_ranks.size() : std::numeric_limits<double>::quiet_NaN();
  }

  void decide(std::size_t scratch) {
    m_limit = memory_limit(m_deck, m_ranks.free_memory(m_space), scratch);
    m_memory = decide_memory(m_space, {m_plan.task}, m_deck.memory.recompute, m_limit,
                             [this](std::size_t plan) { return least_along(m_grid, plan); });
    m_plan.task.trainer.recompute = m_memory.schedule;
  }

  void say_memory() {
    double seconds = m_memory.extra_seconds;
    if (m_machine)
      seconds = recompute_time(
          m_space, m_plan.task, m_memory.schedule,
          {m_machine->matmul_rate(m_plan.task.dtype), m_machine->copy_bandwidth, m_machine->transfer_rate});
    fmt::print("{}", prose(stdout, memory_text(m_deck, m_memory, seconds, m_limit, reserved_scratch(m_space)),
                           plan_indent));
    std::fflush(stdout);
  }

  // The weights to start from: those of a checkpoint of this run, of another model, or new ones.
  void begin(std::optional<TrainingCheckpoint> checkpoint) {
    m_ledger = Ledger::create(Ledger::Mode::allocate, budget_of(m_deck).value_or(Ledger::no_limit),
                              measure::memory_space_of(m_space));
    m_ledger->record_timeline();
    m_learner = make_learner(m_space, m_plan.task, m_ledger);
    // A checkpoint of this run has what learns: the weights, or adapters alone.
    const bool needs_weights = !checkpoint || m_deck.adapter || m_objective->needs_first_weights();
    if (needs_weights && m_plan.checkpoint) m_learner->load(*m_plan.checkpoint);
    if (needs_weights && !m_plan.checkpoint) m_learner->initialise(*m_deck.init);
    if (!checkpoint && m_plan.adapter) m_learner->load(*m_plan.adapter);
    if (!checkpoint && m_deck.adapter && !m_plan.adapter) m_learner->initialise_adapters(m_deck.adapter->seed);
    if (m_plan.checkpoint) m_base = m_plan.checkpoint->folder().string();
    // Its files are mapped, and what was read of them counts as memory of the process.
    m_plan.checkpoint.reset();
    m_plan.adapter.reset();
    m_learner->prepare();
    if (m_objective->needs_first_weights())
      m_objective->begin(*m_learner, m_plan.data, {checkpoint ? checkpoint->step() : 0, m_plan.steps},
                         [this] { return reason_to_stop().has_value(); });
    require_same_checkpoint(checkpoint ? checkpoint->step() : -1);
    if (!checkpoint) return;
    const std::string source = checkpoint->path().string();
    CheckpointRecord record = checkpoint_record(checkpoint->metadata(), checkpoint->columns(), source);
    require_same_run(identity_of(m_deck, m_plan), record.run, source);
    if (checkpoint->step() > m_plan.steps)
      throw FileError(
          fmt::format("'{}' was saved at step {}, but this run has only {} steps; set schedule.steps to at "
                      "least {}, or name another checkpoint.folder",
                      source, checkpoint->step(), m_plan.steps, checkpoint->step()));
    keep_scale_in_bounds(record.state.optimizer);
    m_learner->restore(*checkpoint, record.state);
    m_history = std::move(record.history);
    m_results.add(m_history);
    fmt::print("resumed after step {} from {}\n", checkpoint->step(), source);
    if (const auto changes = changes_text(settings_of(m_deck), record.settings); !changes.empty())
      fmt::print("note: this run differs from the one it continues: {}\n", changes);
  }

  // A file system may show a folder to one rank as it was a while ago.
  void require_same_checkpoint(std::int64_t step) {
    const auto own = static_cast<double>(step);
    for (const double other : m_ranks.gather(std::span(&own, 1), "the checkpoint"))
      if (other != own)
        throw FileError(
            fmt::format("the newest checkpoint in '{}' is of step {} for rank {}, but of step {} for another "
                        "rank; look whether all ranks see the same folder",
                        m_deck.checkpoint->folder, step, m_ranks.rank(), other));
  }

  // Without loss scaling the scale is 1.
  LossScaling loss_scale_rule() const {
    return m_plan.task.trainer.optimizer.loss_scaling.value_or(
        LossScaling{.initial = 1, .growth_interval = 0, .least = 1, .greatest = 1});
  }

  double least_scale() const {
    const LossScaling rule = loss_scale_rule();
    return rule.growth_interval == 0 ? rule.initial : rule.least;
  }

  // A run may continue with other rules for the loss scale.
  void keep_scale_in_bounds(OptimizerState& state) const {
    const LossScaling rule = loss_scale_rule();
    if (rule.least <= state.loss_scale && state.loss_scale <= rule.greatest) return;
    state.loss_scale = rule.initial;
    state.good_steps = 0;
  }

  // A forward pass is a third of a step without adapters.
  TokenFlops flops() const {
    const LlamaConfig& config = m_plan.task.config;
    const auto at = [&](std::int64_t length) {
      return training_flops_per_token(config, length, m_plan.task.trainer.layer.lora) +
             m_objective->other_forwards() * training_flops_per_token(config, length) / 3;
    };
    return {.of_weights = at(0), .of_attention = at(1) - at(0)};
  }

  ProgressScale scale() const {
    return {.steps = m_plan.steps,
            .flops = flops(),
            .flop_rate_limit = flop_rate_limit(),
            .memory = format_bytes(m_ledger->peak_total())};
  }

  void profile(const std::function<void()>& step) {
    m_ranks.barrier("a step with a profile");  // from here on all count their time
    const measure::Profiler profiler(m_deck.profile.timeline);
    step();
    m_profiled = true;
    m_summary.measurement.regions = profiler.regions();
    m_summary.measurement.profile = profiler.kernels();
    m_moments = profiler.moments();
  }

  void summarise(const TrainingEnd& end, const std::string& kernels) {
    m_summary.dtype = name_of(m_plan.task.dtype);
    m_summary.parameters = m_plan.task.config.model_parameter_count();
    m_summary.tokens = end.computed.tokens;
    m_summary.seconds = end.seconds;
    m_summary.checkpoint_wait = end.checkpoint_wait;
    m_summary.last_checkpoint_wait = end.last_checkpoint_wait;
    const auto whole = static_cast<double>(m_deck.batch.seq_len);
    m_summary.flops_per_token = flops().at(end.computed.tokens > 0 ? end.computed.mean_length() : whole);
    m_summary.recompute = schedule_text(m_memory.schedule);
    Measurement& m = m_summary.measurement;
    m.status = end.failure.empty() ? CaseStatus::ok : CaseStatus::error;
    m.message = end.stopped.value_or(end.failure);
    m.kernels = kernels;
    for (int c = 0; c < memory_classes; ++c)
      m.peak[static_cast<std::size_t>(c)] = m_ledger->peak(static_cast<MemoryClass>(c));
    m.peak_total = m_ledger->peak_total();
    m.predicted = m_memory.forecast->peak_total();
    const measure::AllocationWitness& witness = measure::AllocationWitness::install();
    if (witness.installed())
      for (const auto& [name, space] : witness.spaces()) m.witnessed[name] = space.peak;
    m.on_device = measure::device_memory();
    measure_again();
    m_summary.flop_rate_limit = flop_rate_limit();
    if (m_ranks.size() > 1) {
      m_results.ranks().add_memory(m_ranks, m_space, *m_memory.forecast, *m_ledger);
      m_results.ranks().add_communication(m_ranks, communicators_of(m_grid));
    }
    if (m_deck.profile.timeline) m_results.add_timeline(m_ranks, m_moments);
    m_results.add_bookings(*m_ledger);
    m_results.add_transfers(*m_ledger);
    m_results.add(m_summary);
  }

  int close(const TrainingEnd& end) {
    fmt::print("{} tokens in {:.3g} s; memory {} at most, forecast {}, process {}\n", m_summary.tokens,
               end.seconds, format_bytes(m_summary.measurement.peak_total),
               format_bytes(m_summary.measurement.predicted), format_bytes(measure::process_memory().peak));
    if (end.skipped > 0)
      fmt::print("{} of {} steps were skipped: /steps/skipped says which; the weights stayed as they were\n",
                 end.skipped, end.steps);
    if (end.unequal > 0)
      fmt::print("in {} of {} steps sampler and trainer differed: /steps/unequal_logp says in which\n",
                 end.unequal, end.steps);
    if (end.checkpoints > 0)
      fmt::print(
          "{} checkpoints; the steps waited {:.3g} s for them ({:.2g} % of their time), and the end {:.3g} s\n",
          end.checkpoints, end.checkpoint_wait, end.seconds > 0 ? 100 * end.checkpoint_wait / end.seconds : 0,
          end.last_checkpoint_wait);
    // Several ranks are a load for each other.
    if (m_ranks.size() == 1) fmt::print("{}", m_noise.end());
    ResultFile& file = m_results.file();
    if (!end.stopped) {
      file.finish();
      fmt::print("results: {}\n", file.path().string());
      if (end.failure.empty()) return exit_ok;
      if (m_ranks.is_first()) say(stderr, "error: {}\n", end.failure);
      return exit_failure;
    }
    file.checkpoint();
    fmt::print(
        "stopped after step {}: {}; {} results so far: {}\n", m_learner->steps_done(), *end.stopped,
        m_deck.checkpoint ? "checkpoint.resume = true continues it;" : "nothing was saved to continue it;",
        file.part_path().string());
    return exit_stopped;
  }

  const TrainDeck& m_deck;
  Ranks& m_ranks;
  RankGrid m_grid;
  std::string m_space;
  StopRequest m_stop;
  std::unique_ptr<TrainingObjective> m_objective;
  TrainResults m_results;
  std::shared_ptr<Ledger> m_ledger;
  NoiseWatch m_noise;
  std::optional<measure::MachineLimits> m_machine;
  std::optional<measure::CaseLimits> m_limits;
  TrainingPlan m_plan;
  std::unique_ptr<TextWriter> m_texts;
  std::optional<std::size_t> m_limit;  // bytes
  MemoryDecision m_memory;
  std::unique_ptr<Learner> m_learner;
  std::string m_base;  // the model that adapters belong to
  TrainingHistory m_history;
  TrainSummary m_summary;
  bool m_profiled = false;                           // whether a step was
  std::vector<measure::Profiler::Moment> m_moments;  // of that step
};

}  // namespace

void print_training_plan(const TrainDeck& deck, const std::string& space, const Ranks& ranks) {
  checkpoints_of_another_run(deck);
  require_policy(space, deck.memory.recompute);
  const TrainingPlan plan = plan_training(deck);
  make_objective(deck)->open(plan.data, plan.encoder.get());  // checks rewards
  fmt::print("{}", prose(stdout, plan_text(deck, plan), plan_indent));
  const PlanParallelTable* const table = deck.parallel ? &*deck.parallel : nullptr;
  const std::size_t scratch = forecast_scratch(space, plan.scratch_per_thread());
  const auto decide = [&](std::vector<LearnerTask> tasks) {
    return decide_memory(space, std::move(tasks), deck.memory.recompute,
                         memory_limit(deck, ranks.free_memory(space), scratch));
  };
  const auto memory = of_largest_rank(table, micro_batches_of_rank(deck).leaves, plan.task, decide);
  // What is free at this moment says little of a later one.
  const std::string text = memory_text(deck, memory, memory.extra_seconds, budget_of(deck), scratch);
  fmt::print("{}", prose(stdout, text, plan_indent));
}

int train(const TrainDeck& deck, const std::string& space, const OutputFolders& folders,
          std::optional<TrainingCheckpoint> checkpoint, ResultFile& file, Ranks& ranks) {
  return Training(deck, space, std::move(checkpoint), file, ranks).run(folders);
}

}  // namespace kformer::drivers
