// SPDX-License-Identifier: MIT
#include "sweep/measurement.hpp"

#include <chrono>

#include "kformer/core/region.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/kernel_names.hpp"

namespace kformer::drivers {

namespace {

// One forward and, if requested, one backward and one update, in the regions "forward", "backward" and
// "optimizer". Returns the seconds of the direction.
double run_once(Run& run, Direction direction) {
  const auto timed = [&](const char* name, void (Run::*part)()) {
    run.fence();
    const auto begin = std::chrono::steady_clock::now();
    {
      Region region(name);
      (run.*part)();
    }
    run.fence();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double forward = timed("forward", &Run::forward);
  if (direction == Direction::forward) return forward;
  const double backward = timed("backward", &Run::backward);
  if (direction == Direction::backward) return backward;
  return forward + backward + timed("optimizer", &Run::update);
}

}  // namespace

std::size_t predicted_bytes(const MakeRun& make) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  make(ledger);
  return ledger->peak_total();
}

HostArrays measure(const MakeRun& make, const MeasuringPlan& plan, Measurement& measurement) {
  const TimingTable& timing = *plan.timing;
  AllocationWitness* witness =
      plan.profile->memory == MemoryProfile::peak ? &AllocationWitness::install() : nullptr;
  if (witness) witness->reset_peaks();
  const auto ledger = Ledger::create();
  HostArrays results;
  {
    KernelNames names;
    const auto run = make(ledger);
    run->prepare(plan.stop);
    double warm = 0;
    if (plan.profile->kernels) {
      Profiler profiler;
      warm = run_once(*run, plan.direction);
      measurement.regions = profiler.regions();
      measurement.profile = profiler.kernels();
    } else {
      warm = run_once(*run, plan.direction);
    }
    if (plan.keep_results) results = run->results(plan.direction != Direction::forward);
    for (std::int64_t i = 1; i < timing.warmup && !plan.stop(); ++i)
      warm = run->sample(plan.direction, {.repeats = 1, .min_time_s = 0}, 0, plan.stop).seconds.front();
    measurement.samples =
        run->sample(plan.direction, {timing.repeats, timing.min_time_s, timing.max_time_s}, warm, plan.stop);
    measurement.kernels = names.text();
    run->report(measurement);
    if (witness) measurement.on_device = device_memory();
  }
  for (int c = 0; c < memory_classes; ++c)
    measurement.peak[static_cast<std::size_t>(c)] = ledger->peak(static_cast<MemoryClass>(c));
  measurement.peak_total = ledger->peak_total();
  if (witness && witness->installed())
    for (const auto& [name, space] : witness->spaces()) measurement.witnessed[name] = space.peak;
  return results;
}

}  // namespace kformer::drivers
