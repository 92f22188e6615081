// SPDX-License-Identifier: MIT
#include "language_model/text_engine.hpp"

#include "measure/spaces.hpp"

namespace kformer::drivers {

std::unique_ptr<TextEngine> make_text_engine(const std::string& space, const EngineTask& task,
                                             const std::shared_ptr<Ledger>& ledger) {
  return measure::on_space(
      space, [&]<class Exec>(std::type_identity<Exec>) { return make_text_engine_on<Exec>(task, *ledger); });
}

std::shared_ptr<const Ledger> forecast_of(const std::string& space, const EngineTask& task) {
  auto ledger = Ledger::create(Ledger::Mode::count);
  make_text_engine(space, task, ledger);
  return ledger;
}

}  // namespace kformer::drivers
