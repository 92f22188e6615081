// SPDX-License-Identifier: MIT
#include "layer/layer_run.hpp"

#include "common/spaces.hpp"

namespace kformer::drivers {

std::unique_ptr<Run> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                    const std::shared_ptr<Ledger>& ledger) {
  return on_space(space, [&]<class Exec>(std::type_identity<Exec>) {
    return make_layer_run_on<Exec>(dtype, task, *ledger);
  });
}

}  // namespace kformer::drivers
