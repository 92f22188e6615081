// SPDX-License-Identifier: MIT
#include "scaling/workload.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

std::unique_ptr<LayerBench> make_layer_bench(const std::string& space, const LearnerTask& task,
                                             const std::shared_ptr<Ledger>& ledger) {
  return measure::on_space(
      space, [&]<class Exec>(std::type_identity<Exec>) { return make_layer_bench_on<Exec>(task, *ledger); });
}

std::unique_ptr<LinkBench> make_link_bench(const std::string& space, const std::shared_ptr<Communicator>& ranks,
                                           std::size_t bytes, const std::shared_ptr<Ledger>& ledger) {
  return measure::on_space(space, [&]<class Exec>(std::type_identity<Exec>) {
    return make_link_bench_on<Exec>(ranks, bytes, *ledger);
  });
}

TrainedArrays trained_arrays(const std::string& space, const LearnerTask& task) {
  return measure::on_space(space,
                           [&]<class Exec>(std::type_identity<Exec>) { return trained_arrays_on<Exec>(task); });
}

}  // namespace kformer::drivers
