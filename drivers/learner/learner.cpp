// SPDX-License-Identifier: MIT
#include "learner/learner.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

std::unique_ptr<Learner> make_learner(const std::string& space, const LearnerTask& task,
                                      const std::shared_ptr<Ledger>& ledger) {
  return measure::on_space(
      space, [&]<class Exec>(std::type_identity<Exec>) { return make_learner_on<Exec>(task, *ledger); });
}

RecomputeCosts recompute_costs_of(const std::string& space, const LearnerTask& task,
                                  const MachineRates& rates) {
  return measure::on_space(
      space, [&]<class Exec>(std::type_identity<Exec>) { return recompute_costs_on<Exec>(task, rates); });
}

std::shared_ptr<const Ledger> forecast_of(const std::string& space, const LearnerTask& task) {
  auto ledger = Ledger::create(Ledger::Mode::count);
  make_learner(space, task, ledger);
  return ledger;
}

}  // namespace kformer::drivers
