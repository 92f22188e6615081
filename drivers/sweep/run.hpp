// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "decks/sweep/sweep.hpp"
#include "kformer/memory/ledger.hpp"
#include "measure/host_array.hpp"
#include "measure/timing_samples.hpp"

namespace kformer::drivers {

struct Measurement;

/// Which rows of the results are wanted; see `judged_part`.
enum class ResultRows { all, judged };

/// A computation with a forward and a backward pass, its inputs and outputs, behind an interface that depends on
/// neither execution space nor precision.
class Run {
 public:
  virtual ~Run() = default;
  /// Writes the inputs, and sets accumulated gradients to zero. `stop` is asked where that takes long.
  virtual void prepare(const std::function<bool()>& stop) = 0;
  /// Launches forward.
  virtual void forward() = 0;
  /// Launches backward of the last forward.
  virtual void backward() = 0;
  /// What follows backward in a training step.
  virtual void update() {}
  /// Waits.
  virtual void fence() = 0;
  /// Times the direction, warmed up by the caller in `warm_seconds`.
  virtual measure::Samples sample(Direction direction, const measure::SamplingPlan& plan, double warm_seconds,
                                  const std::function<bool()>& stop) = 0;
  /// What forward computed and, if `gradients`, what backward did.
  virtual measure::HostArrays results(bool gradients, ResultRows rows) = 0;
  /// Elements of each of these, also of a run that only counts.
  virtual std::vector<std::size_t> result_sizes(bool gradients) const = 0;
  /// Adds to the measurement what only the run knows.
  virtual void report(Measurement&) const {}

 protected:
  /// What one call of a direction launches.
  void launch(Direction direction) {
    if (direction != Direction::backward) forward();
    if (direction != Direction::forward) backward();
    if (direction == Direction::step) update();
  }
};

/// Makes a run whose memory is booked in the ledger.
using MakeRun = std::function<std::unique_ptr<Run>(const std::shared_ptr<Ledger>&)>;

}  // namespace kformer::drivers
