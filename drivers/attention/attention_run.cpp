// SPDX-License-Identifier: MIT
#include "attention/attention_run.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

std::string standard_refusal(const AttentionTask& task) {
  const auto refuse = [](const std::string& what) {
    return "standard attention has no " + what + "; use impl = \"flash\"";
  };
  if (task.options.softcap > 0) return refuse("soft-capping");
  if (task.tensor("sinks")) return refuse("sinks");
  if (task.tensor("alibi_slopes")) return refuse("ALiBi slopes");
  if (task.tensor("cu_seqlens_q")) return refuse("packed sequences");
  if (task.tensor("bias") && task.backward) return refuse("gradient of a bias");
  return {};
}

std::unique_ptr<Run> make_attention_run(const std::string& space, const AttentionTask& task,
                                        const std::shared_ptr<Ledger>& ledger) {
  if (task.impl == AttentionAlgorithm::standard)
    if (const std::string refusal = standard_refusal(task); !refusal.empty()) throw NotSupported(refusal);
  return measure::on_space(
      space, [&]<class Exec>(std::type_identity<Exec>) { return make_attention_run_on<Exec>(task, *ledger); });
}

}  // namespace kformer::drivers
