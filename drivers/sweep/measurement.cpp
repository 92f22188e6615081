// SPDX-License-Identifier: MIT
#include "sweep/measurement.hpp"

#include <chrono>

#include "app/program.hpp"
#include "kformer/core/region.hpp"
#include "measure/allocation_witness.hpp"
#include "measure/kernel_names.hpp"
#include "measure/process/core_wait.hpp"
#include "sweep/noise.hpp"

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

bool record_out_of_memory(const std::exception& error, OnOutOfMemory on_oom, Measurement& measurement) {
  const auto memory = out_of_memory_text(error);
  if (!memory) return false;
  if (on_oom == OnOutOfMemory::abort) throw OutOfMemory(*memory);
  measurement.status = CaseStatus::out_of_memory;
  measurement.message = *memory;
  return true;
}

void record_failure(OnOutOfMemory on_oom, Measurement& measurement, const std::function<void()>& run) {
  const auto ended = [&](CaseStatus status, const std::string& message) {
    measurement.status = status;
    measurement.message = message;
  };
  try {
    run();
  } catch (const NotSupported& error) {
    ended(CaseStatus::unsupported, error.what());
  } catch (const std::exception& error) {
    if (!record_out_of_memory(error, on_oom, measurement)) ended(CaseStatus::error, error.what());
  }
}

std::size_t predicted_bytes(const MakeRun& make) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  make(ledger);
  return ledger->peak_total();
}

measure::HostArrays measure_run(const MakeRun& make, const MeasuringPlan& plan, Measurement& measurement) {
  const TimingTable& timing = *plan.timing;
  measure::AllocationWitness* witness =
      plan.profile->memory == MemoryProfile::peak ? &measure::AllocationWitness::install() : nullptr;
  measurement.limits = plan.limits();
  if (witness) witness->reset_peaks();
  const auto ledger = Ledger::create();
  measure::HostArrays results;
  {
    measure::KernelNames names;
    const auto run = make(ledger);
    run->prepare(plan.stop);
    double warm = 0;
    if (plan.profile->kernels) {
      measure::Profiler profiler;
      warm = run_once(*run, plan.direction);
      measurement.regions = profiler.regions();
      measurement.profile = profiler.kernels();
    } else {
      warm = run_once(*run, plan.direction);
    }
    if (plan.keep_results) results = run->results(plan.direction != Direction::forward, *plan.keep_results);
    for (std::int64_t i = 1; i < timing.warmup && !plan.stop(); ++i)
      warm = run->sample(plan.direction, {.repeats = 1, .min_time_s = 0}, 0, plan.stop).seconds.front();
    const measure::CoreWatch cores;
    measurement.samples =
        run->sample(plan.direction, {timing.repeats, timing.min_time_s, timing.max_time_s}, warm, plan.stop);
    measurement.core_wait_share = cores.share();
    measurement.kernels = names.text();
    run->report(measurement);
    if (witness) measurement.on_device = measure::device_memory();
  }
  for (int c = 0; c < memory_classes; ++c)
    measurement.peak[static_cast<std::size_t>(c)] = ledger->peak(static_cast<MemoryClass>(c));
  measurement.peak_total = ledger->peak_total();
  if (witness && witness->installed())
    for (const auto& [name, space] : witness->spaces()) measurement.witnessed[name] = space.peak;
  const measure::CaseLimits after = plan.limits();
  measurement.limits_change = change_between(measurement.limits, after);
  measurement.limits = larger_of(measurement.limits, after);
  return results;
}

}  // namespace kformer::drivers
