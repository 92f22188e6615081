// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "generate/generation.hpp"
#include "language_model/text_engine.hpp"
#include "sweep/reference_runs.hpp"

namespace kformer::drivers {

/// Compares the logits that tokens were chosen from with recomputations of the whole sequence, which keep nothing
/// between tokens: in double, and naively in the same precision, which sets the limits of the tolerance rule.
/// Both run no kernel that the generation ran.
class LogitCheck {
 public:
  /// \param space      of the generation
  /// \param task       its engine
  /// \param checkpoint read again for each recomputation; must outlive the check
  /// \param loading    "function:kernel ...", what ran while the weights were loaded
  LogitCheck(const std::string& space, const EngineTask& task, const Checkpoint& checkpoint,
             std::string loading);

  /// Forgets what was kept.
  void clear() { m_steps.clear(); }
  /// Keeps the logits that the newest token of each row was chosen from.
  void keep(const TextEngine& engine);
  /// Recomputes what was kept, and writes status, message and errors into `generation`, whose kernels are known. A
  /// cache that forgets and rounded activations are compared, but not judged.
  /// \param engine that of the generation
  /// \param stop   called between tokens; then the generation is not checked
  void judge(const TextEngine& engine, Generation& generation, const std::function<bool()>& stop);

 private:
  struct Step {
    std::size_t row, tokens;  // before the token that was chosen
    std::vector<double> logits;
  };
  /// An engine of some kernels.
  struct Recomputation {
    std::string kernels, ran;
    std::shared_ptr<Ledger> ledger;
    std::unique_ptr<TextEngine> engine;
  };

  EngineTask task(DType dtype) const;
  void make(Recomputation& recomputation, const std::string& kernels, DType dtype) const;
  std::size_t held_bytes() const;
  std::shared_ptr<ReferenceResult> run(Recomputation& recomputation, const std::string& kernels, DType dtype,
                                       const TextEngine& engine, const std::function<bool()>& stop) const;
  std::string largest_error(const measure::HostArrays& exact, Generation& generation) const;
  bool fits(Measurement& m) const;
  bool is_judged(const TextEngine& engine) const;

  std::string m_space;
  EngineTask m_task;
  const Checkpoint& m_checkpoint;
  std::string m_loading;
  std::vector<Step> m_steps;
  Recomputation m_exact, m_naive;
};

}  // namespace kformer::drivers
