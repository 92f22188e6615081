// SPDX-License-Identifier: MIT
#include "layer/layer_run.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

OptimizerOptions optimizer_options(const LayerTask& task) {
  const OptimizerTable& t = task.optimizer;
  return {t.beta1,
          t.beta2,
          t.eps,
          t.weight_decay,
          t.max_norm,
          t.states,
          task.precision.master == MasterWeights::f32,
          loss_scaling(task.precision)};
}

std::unique_ptr<Run> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                    const std::shared_ptr<Ledger>& ledger) {
  return measure::on_space(space, [&]<class Exec>(std::type_identity<Exec>) {
    return make_layer_run_on<Exec>(dtype, task, *ledger);
  });
}

}  // namespace kformer::drivers
