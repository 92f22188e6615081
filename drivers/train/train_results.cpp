// SPDX-License-Identifier: MIT
#include "train/train_results.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "app/communication.hpp"
#include "measure/process/process_memory.hpp"

namespace kformer::drivers {

namespace {

using enum ColumnType;

Table& declare_cases(ResultFile& file) {
  Table& t = file.table("cases", "case", "training");
  t.column({"op", text, "1", "what was run"});
  t.column({"dtype", text, "1", "storage type of weights and activations"});
  t.column({"execution_space", text, "1", "Kokkos execution space"});
  t.column({"parameters", i64, "1", "weights of the model"});
  t.column({"recompute", text, "1", "what layers kept for backward"});
  t.column({"tokens", i64, "1",
            "tokens that the steps of this run computed, with those that have no loss; not of a step with a "
            "profile"});
  t.column(finite({"time", f64, "s", "of these steps"}));
  t.column({"token_rate", f64, "1/s", "tokens over time"});
  t.column(finite({"flops_per_token", f64, "1", "floating-point operations of a step for each token"}));
  t.column({"flop_rate_limit", f64, "1/s",
            "FLOP/s of the dtype by instructions alone, the larger of before and after the steps"});
  t.column({"share_of_limit", f64, "1", "flops_per_token * token_rate over flop_rate_limit (MFU)"});
  t.column({"checkpoint_wait", f64, "s", "time that the steps of this run waited for checkpoints"});
  t.column({"last_checkpoint_wait", f64, "s", "time from the last step to the end of the last checkpoint"});
  declare_disturbances(t, "training");
  declare_peak_columns(t);
  t.column({"process_peak_bytes", u64, "byte", "peak resident memory of the process, by the system"});
  declare_outcome_columns(t, "training");
  t.attribute(
      "flops_formula",
      "6*parameters + 12*layers*heads*head_dim*length for each token (arXiv:2204.02311, appendix B), with the "
      "mean length of the sequences that tokens were computed in, "
      "4*parameters for frozen ones; a third of the first more for each other forward pass: with dpo and "
      "adapters that of the reference, with grpo that of sampling, over policy.updates, and with policy.beta "
      "that of the reference; recomputation does not count",
      "what flops_per_token counts");
  return t;
}

// The table, which not every file has.
Table& conditional(Table& table, const char* when) {
  table.when(when);
  return table;
}

// A column for each figure, behind the others.
template <class Record>
std::vector<typename RecordTable<Record>::Field> with_figures(
    std::vector<typename RecordTable<Record>::Field> fields, std::span<const FigureColumn> figures) {
  for (const FigureColumn& figure : figures)
    fields.push_back({{.name = figure.name, .long_name = figure.help, .when = figure.when},
                      [name = figure.name](const Record& record) {
                        const auto value = record.figures.find(name);
                        return value == record.figures.end() ? std::numeric_limits<double>::quiet_NaN()
                                                             : value->second;
                      }});
  return fields;
}

RecordTable<StepRecord> declare_steps(ResultFile& file, std::span<const FigureColumn> figures) {
  return {
      file.table("steps", "step", "step of the training, with those before it was resumed"),
      with_figures<StepRecord>(
          {{{"step", i64, "1", "number of the step, from 0"}, &StepRecord::step},
           {{"loss", f64, "1",
             "of the objective before the update: the mean over target tokens, in nats, or over pairs; with "
             "grpo the loss of the policy"},
            &StepRecord::loss},
           {finite({"learning_rate", f64, "1", "of the update"}), &StepRecord::learning_rate},
           {{"gradient_norm", f64, "1", "global norm of the gradient of the mean loss, before clipping"},
            &StepRecord::gradient_norm},
           {{"tokens", i64, "1", "target tokens"}, &StepRecord::tokens},
           {{"time", f64, "s",
             "from reading the sequences to the end of the update; NaN of a step with a profile"},
            &StepRecord::time},
           {finite({"loss_scale", f64, "1", "factor on the loss before backward"}), &StepRecord::loss_scale},
           {{"skipped", flag, "1", "whether the weights stayed as they were", "", {"no", "yes"}},
            &StepRecord::skipped}},
          figures)};
}

RecordTable<EvaluationRecord> declare_evaluations(ResultFile& file, std::span<const FigureColumn> figures) {
  return {
      conditional(file.table("evaluations", "evaluation", "loss on the validation data"), "with [evaluation]"),
      with_figures<EvaluationRecord>(
          {{{"step", i64, "1", "steps done before"}, &EvaluationRecord::step},
           {{"loss", f64, "1",
             "of the objective: the mean over target tokens, in nats, or over pairs; with grpo minus the mean "
             "reward"},
            &EvaluationRecord::loss},
           {finite({"time", f64, "s", "of the evaluation"}), &EvaluationRecord::time}},
          figures)};
}

RecordTable<SampleRecord> declare_samples(ResultFile& file) {
  return {
      conditional(file.table("samples", "sample", "text that the model wrote on the way"), "with [samples]"),
      {{{"step", i64, "1", "steps done before"}, &SampleRecord::step},
       {{"prompt", text, "1", "beginning of the text"}, &SampleRecord::prompt},
       {{"text", text, "1", "what follows"}, &SampleRecord::text}}};
}

RecordTable<CheckpointWait> declare_checkpoints(ResultFile& file) {
  return {conditional(file.table("checkpoints", "checkpoint", "files of this run from which it can continue"),
                      "with [checkpoint]"),
          {{{"step", i64, "1", "steps done before"}, &CheckpointWait::step},
           {{"waited", f64, "s",
             "until the next step could begin: the end of the checkpoint before, the copy, and without "
             "checkpoint.background the file"},
            &CheckpointWait::waited}}};
}

Table& declare_timeline(ResultFile& file) {
  Table& t = table_by_class(file, "memory/timeline", "entry", "memory at a moment of the training");
  t.column({"step", i64, "1", "steps done"});
  t.column({"event", text, "1", "what happened"});
  t.column({"bytes", u64, "byte", "booked in the ledger", "memory_class"});
  t.column({"resident_bytes", u64, "byte", "resident memory of the process, by the system; 0 if unknown"});
  t.column({"resident_peak_bytes", u64, "byte", "peak since the machine's limits were measured"});
  return t;
}

Table& declare_bookings(ResultFile& file) {
  Table& t =
      table_by_class(file, "memory/bookings", "change",
                     "every change of what the ledger has booked, from its beginning to the end of the run");
  t.column(finite({"time", f64, "s", "since the ledger was made"}));
  t.column({"bytes", u64, "byte", "booked after the change", "memory_class"});
  t.column({"total_bytes", u64, "byte", "of all classes"});
  return t;
}

RecordTable<TransferCount> declare_transfers(ResultFile& file) {
  return {conditional(file.table("memory/transfers", "direction", "copies from one memory space to another"),
                      "where something was copied between memory spaces"),
          {{{"from", text, "1", "memory space that was read"}, &TransferCount::from},
           {{"to", text, "1", "memory space that was written"}, &TransferCount::to},
           {{"transfers", u64, "1", "copies of this run"}, &TransferCount::transfers},
           {{"bytes", u64, "byte", "of all of them"}, &TransferCount::bytes}}};
}

RecordTable<RankMoment> declare_moments(ResultFile& file) {
  Table& t =
      file.table("timeline", "moment", "when kernels, regions and sections of one step began on each rank");
  return {conditional(t, "with [profile] timeline = true"),
          {{{"rank", i64, "1", "which one"}, &RankMoment::rank},
           {{"kind", text, "1",
             "region; for, reduce or scan: a kernel; section: what is under way, such as messages"},
            &RankMoment::kind},
           {{"name", text, "1", "its label"}, &RankMoment::name},
           {finite({"begin", f64, "s", "since the step began, on the clock of the rank"}), &RankMoment::begin},
           {finite({"duration", f64, "s", "until it ended; kernels are fenced"}), &RankMoment::seconds}}};
}

}  // namespace

TrainResults::TrainResults(ResultFile& file, std::string space, std::span<const FigureColumn> figures)
    : m_file(file),
      m_space(std::move(space)),
      m_cases(declare_cases(file)),
      m_steps(declare_steps(file, figures)),
      m_evaluations(declare_evaluations(file, figures)),
      m_samples(declare_samples(file)),
      m_checkpoints(declare_checkpoints(file)),
      m_timeline(declare_timeline(file)),
      m_bookings(declare_bookings(file)),
      m_transfers(declare_transfers(file)),
      m_ranks(file),
      m_moments(declare_moments(file)),
      m_measurements(file) {}

void TrainResults::add_timeline(Ranks& ranks, std::span<const measure::Profiler::Moment> own) {
  auto rows = nlohmann::json::array();
  for (const auto& m : own) rows.push_back({m.kind, m.name, m.begin, m.seconds});
  std::int64_t rank = 0;
  for (const std::string& text : ranks.gather_text(rows.dump(), "the timeline")) {
    for (const auto& row : nlohmann::json::parse(text))
      m_moments.append({{row[0], row[1], row[2], row[3]}, rank});
    ++rank;
  }
}

void TrainResults::add(const TrainingHistory& history) {
  for (const StepRecord& s : history.steps) add(s);
  for (const EvaluationRecord& e : history.evaluations) add(e);
  for (const SampleRecord& s : history.samples) add(s);
}

void TrainResults::add_memory(const Ledger& ledger, std::int64_t step, const std::string& event) {
  std::vector<std::uint64_t> bytes;
  for (int c = 0; c < memory_classes; ++c) bytes.push_back(ledger.current(static_cast<MemoryClass>(c)));
  const measure::ProcessMemory process = measure::process_memory();
  m_timeline.append({{"step", step},
                     {"event", event},
                     {"bytes", bytes},
                     {"resident_bytes", process.resident},
                     {"resident_peak_bytes", process.peak}});
}

void TrainResults::add_bookings(const Ledger& ledger) {
  for (const MemoryMoment& moment : ledger.timeline())
    m_bookings.append({{"time", moment.seconds},
                       {"bytes", std::vector<std::uint64_t>(moment.bytes.begin(), moment.bytes.end())},
                       {"total_bytes", static_cast<std::uint64_t>(moment.total)}});
}

void TrainResults::add_transfers(const Ledger& ledger) {
  for (const TransferCount& count : ledger.transfers()) m_transfers.append(count);
}

void TrainResults::add(const TrainSummary& s) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double rate = s.seconds > 0 ? static_cast<double>(s.tokens) / s.seconds : nan;
  std::vector<Table::Cell> cells = outcome_cells(s.measurement, m_space);
  cells.insert(cells.end(), {{"op", "train"},
                             {"dtype", s.dtype},
                             {"execution_space", m_space},
                             {"parameters", s.parameters},
                             {"recompute", s.recompute},
                             {"tokens", s.tokens},
                             {"time", s.seconds},
                             {"token_rate", rate},
                             {"checkpoint_wait", s.checkpoint_wait},
                             {"last_checkpoint_wait", s.last_checkpoint_wait},
                             {"flops_per_token", s.flops_per_token},
                             {"flop_rate_limit", s.flop_rate_limit},
                             {"share_of_limit", s.flops_per_token * rate / s.flop_rate_limit},
                             {"process_peak_bytes", measure::process_memory().peak}});
  std::ranges::copy(disturbance_cells(s.measurement), std::back_inserter(cells));
  m_cases.append(cells);
  m_measurements.add_case(s.measurement, m_space);
}

}  // namespace kformer::drivers
