// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>

#include "app/rank_results.hpp"
#include "kformer/io/result_file.hpp"
#include "measure/profiler.hpp"
#include "sweep/measurement_tables.hpp"
#include "sweep/record_table.hpp"
#include "train/history.hpp"

namespace kformer::drivers {

/// What a result file says of a training as a whole.
struct TrainSummary {
  std::string dtype;                ///< storage type
  std::int64_t parameters = 0;      ///< of the model
  std::int64_t tokens = 0;          ///< as of `TrainingEnd`
  double seconds = 0;               ///< as of `TrainingEnd`
  double flops_per_token = 0;       ///< see `training_flops_per_token`
  double checkpoint_wait = 0;       ///< s, that these steps waited for checkpoints
  double last_checkpoint_wait = 0;  ///< s, from the end of the last step to the end of the last checkpoint
  double flop_rate_limit = 0;       ///< FLOP/s of the machine in this type; NaN if unknown
  std::string recompute;            ///< policy in words
  Measurement measurement;          ///< kernels, memory, profile, how it ended
};

/// When something began on a rank, and how long it lasted.
struct RankMoment : measure::Profiler::Moment {
  std::int64_t rank = 0;  ///< which one
};

/// The tables of a training in its result file.
class TrainResults {
 public:
  /// Declares the tables.
  /// \param space   name of the execution space
  /// \param figures of steps and evaluations
  TrainResults(ResultFile& file, std::string space, std::span<const FigureColumn> figures = {});

  /// A row of /machine.
  void add_machine(const measure::MachineLimits& limits) { m_measurements.add_machine(m_space, limits); }
  /// A row of /steps.
  void add(const StepRecord& step) { m_steps.append(step); }
  /// A row of /evaluations.
  void add(const EvaluationRecord& evaluation) { m_evaluations.append(evaluation); }
  /// A row of /samples.
  void add(const SampleRecord& sample) { m_samples.append(sample); }
  /// A row of /checkpoints.
  void add(const CheckpointWait& wait) { m_checkpoints.append(wait); }
  /// All rows of an earlier run.
  void add(const TrainingHistory& history);
  /// A row of /memory/timeline: what is booked and resident now.
  /// \param step  steps done
  /// \param event what happens
  void add_memory(const Ledger& ledger, std::int64_t step, const std::string& event);
  /// The rows of /memory/bookings: the timeline of the ledger.
  void add_bookings(const Ledger& ledger);
  /// The rows of /memory/transfers.
  void add_transfers(const Ledger& ledger);
  /// The tables of ranks that train together.
  RankResults& ranks() { return m_ranks; }
  /// The rows of /timeline, of all ranks. All ranks call it.
  void add_timeline(Ranks& ranks, std::span<const measure::Profiler::Moment> own);
  /// The row of /cases, and what it measured.
  void add(const TrainSummary& summary);
  /// Writes what there is so far.
  void checkpoint() { m_file.checkpoint(); }
  /// The file.
  ResultFile& file() { return m_file; }

 private:
  ResultFile& m_file;
  std::string m_space;
  Table& m_cases;
  RecordTable<StepRecord> m_steps;
  RecordTable<EvaluationRecord> m_evaluations;
  RecordTable<SampleRecord> m_samples;
  RecordTable<CheckpointWait> m_checkpoints;
  Table& m_timeline;
  Table& m_bookings;
  RecordTable<TransferCount> m_transfers;
  RankResults m_ranks;
  RecordTable<RankMoment> m_moments;
  MeasurementTables m_measurements;
};

}  // namespace kformer::drivers
