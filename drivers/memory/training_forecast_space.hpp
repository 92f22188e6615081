// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/llama_model.hpp"
#include "kformer/train/optimizer.hpp"
#include "memory/training_forecast.hpp"

/// \file
/// Definition of `forecast_training_on`.

namespace kformer::drivers {

template <class Exec>
void forecast_training_on(DType dtype, const LlamaConfig& config, LayerShape shape, Ledger& ledger) {
  dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) {
    const LlamaModel<Exec, T> model(config, shape, {}, ledger);
    const Optimizer<Exec, T> optimizer(model.parameters(), {}, ledger);
  });
}

}  // namespace kformer::drivers
