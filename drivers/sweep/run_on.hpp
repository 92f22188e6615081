// SPDX-License-Identifier: MIT
#pragma once

#include "measure/timing.hpp"
#include "sweep/run.hpp"

namespace kformer::drivers {

/// A run on an instance of its own.
template <class Exec>
class RunOn : public Run {
 public:
  /// \param program name of the driver
  explicit RunOn(const char* program) : m_program(program) {}

  void fence() override { m_exec.fence(m_program); }

  measure::Samples sample(Direction direction, const measure::SamplingPlan& plan, double warm_seconds,
                          const std::function<bool()>& stop) override {
    return measure::sample(m_exec, plan, warm_seconds, [=, this] { this->launch(direction); }, stop);
  }

 protected:
  Exec m_exec;

 private:
  const char* m_program;
};

}  // namespace kformer::drivers
