// SPDX-License-Identifier: MIT
#include "generate/logit_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kformer/core/kernel_list.hpp"
#include "kformer/core/tolerance.hpp"
#include "language_model/cache_options.hpp"
#include "measure/host_array.hpp"
#include "measure/kernel_names.hpp"
#include "sweep/check_kernels.hpp"
#include "sweep/judge.hpp"

namespace kformer::drivers {

LogitCheck::LogitCheck(const std::string& space, const EngineTask& task, const Checkpoint& checkpoint,
                       std::string loading)
    : m_space(reference_space(space)), m_task(task), m_checkpoint(checkpoint), m_loading(std::move(loading)) {}

void LogitCheck::keep(const TextEngine& engine) {
  auto logits = engine.step_logits();
  for (std::size_t r = 0; r < logits.size(); ++r) {
    const GeneratedSequence& sequence = engine.sequences()[r];
    if (logits[r].empty() || sequence.stopped == StopReason::no_token) continue;
    m_steps.push_back({r, sequence.tokens.size() - 1, std::move(logits[r])});
  }
}

// One sequence with a cache of its own, always from its beginning.
EngineTask LogitCheck::task(DType dtype) const {
  EngineTask task = m_task;
  task.dtype = dtype;
  task.decoder.activations = Activations::full;
  task.generator.batch = task.decoder.max_logit_rows = 1;
  task.cache = cache_options(KvCacheKind::contiguous, {}, task);
  task.logits_after = true;
  return task;
}

void LogitCheck::make(Recomputation& recomputation, const std::string& kernels, DType dtype) const {
  if (recomputation.engine && recomputation.kernels == kernels) return;
  recomputation = {};
  const ForcedKernels forced(kernels);
  const measure::KernelNames names;
  recomputation.ledger = Ledger::create();
  recomputation.engine = make_text_engine(m_space, task(dtype), recomputation.ledger);
  recomputation.engine->load(m_checkpoint, {});
  recomputation.ran = names.text();
  recomputation.kernels = kernels;
}

std::vector<double> LogitCheck::logits_after(Recomputation& recomputation,
                                             const std::vector<std::int32_t>& tokens) {
  const ForcedKernels forced(recomputation.kernels);
  const measure::KernelNames names;
  std::vector<double> logits = recomputation.engine->logits_after(tokens);
  recomputation.ran = joined(recomputation.ran, names.text());
  return logits;
}

// What the engines of earlier prompts hold.
std::size_t LogitCheck::held_bytes() const {
  std::size_t bytes = 0;
  for (const Recomputation* recomputation : {&m_exact, &m_naive})
    if (recomputation->engine) bytes += recomputation->ledger->current_total();
  return bytes;
}

bool LogitCheck::is_judged(const TextEngine& engine) const {
  return engine.exact_cache() && m_task.decoder.activations == Activations::full;
}

void LogitCheck::judge(const TextEngine& engine, Generation& generation, const std::function<bool()>& stop) {
  Measurement& m = generation.measurement;
  if (m_steps.empty()) {
    m.message = "not checked: no token was chosen";
    return;
  }
  const DType naive_type = naive_stand_in(m_task.dtype).dtype;
  std::size_t kept = 0;
  for (const Step& step : m_steps) kept += step.logits.size() * sizeof(double);
  m.check_bytes = forecast_of(m_space, task(DType::f64))->peak_total() +
                  forecast_of(m_space, task(naive_type))->peak_total() + 3 * kept;
  m.check_held = held_bytes();
  if (!fits_check(m_space, m)) return;

  const std::string ran = m_loading + " " + m.kernels;
  make(m_exact, reference_kernels(ran, Instead::reference), DType::f64);
  make(m_naive, reference_kernels(ran), naive_type);
  measure::HostArrays results, exact, naive;
  long double largest = 0;
  std::string where;
  for (const Step& step : m_steps) {
    if (stop()) return interrupted(m);
    const auto first = engine.sequences()[step.row].tokens.begin();
    const std::vector<std::int32_t> before(first, first + static_cast<std::ptrdiff_t>(step.tokens));
    const std::string row = fmt::format("row {}", step.row);
    add_row(results[row], step.logits);
    const auto expected = logits_after(m_exact, before);
    if (const long double error = error_norms(step.logits, expected).max; where.empty() || error > largest) {
      largest = error;
      where = fmt::format("largest for token {} of sequence {}", step.tokens, step.row);
    }
    add_row(exact[row], expected);
    add_row(naive[row], logits_after(m_naive, before));
  }
  generation.max_logit_err = static_cast<double>(largest);
  m.check_kernels = m_exact.ran;
  if (!is_judged(engine) || !independent(m, m_loading)) return;
  if (!has_independent_limits(m, m_naive.ran, m_loading)) return;
  m.status = CaseStatus::ok;
  m.message =
      drivers::judge(results, exact, naive, m_task.dtype, [&](const std::string&) { return m_task.dtype; });
  if (m.message.empty()) return;
  m.status = CaseStatus::failed_check;
  m.message += "; " + where;
}

}  // namespace kformer::drivers
