// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>

#include "decks/sweep/sweep.hpp"
#include "measure/host_array.hpp"
#include "measure/samples.hpp"

namespace kformer::drivers {

struct Measurement;

/// A computation with a forward and a backward pass, its inputs and outputs, behind an interface that knows
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
  virtual Samples sample(Direction direction, const SamplingPlan& plan, double warm_seconds,
                         const std::function<bool()>& stop) = 0;
  /// What forward computed and, if `gradients`, what backward did.
  virtual HostArrays results(bool gradients) = 0;
  /// Writes down what only the run knows.
  virtual void report(Measurement&) const {}

 protected:
  /// What one call of a direction launches.
  void launch(Direction direction) {
    if (direction != Direction::backward) forward();
    if (direction != Direction::forward) backward();
    if (direction == Direction::step) update();
  }
};

}  // namespace kformer::drivers
