// SPDX-License-Identifier: MIT
#pragma once

#include <memory>

#include "kformer/model/llama_decoder.hpp"
#include "model/model_run.hpp"

/// \file
/// A decoder for tests.

namespace kformer::Testing {

/// A decoder with a cache, and its weights written.
template <class T>
struct Decoding {
  std::shared_ptr<Ledger> ledger = Ledger::create();
  LlamaDecoder<Exec, T> decoder;
  std::unique_ptr<KvCache<Exec, T>> cache;

  Decoding(const ModelInputs& inputs, const DecoderOptions& options, KvCacheOptions kept)
      : decoder(inputs.config, options, *ledger) {
    kept.num_layers = inputs.config.num_hidden_layers;
    kept.max_step_tokens = options.max_rows;
    if (kept.capacity == 0) kept.capacity = options.max_positions;
    cache = KvCache<Exec, T>::create(inputs.config, kept, *ledger);
    for (const WeightSlot& slot : decoder.weights()) write(slot, inputs.weights.at(slot.name));
    decoder.prepare(Exec());
  }

 private:
  static void write(const WeightSlot& slot, const HostTensor<double>& values) {
    if (!slot.is_quantized()) {
      write_parameter<T>(slot.dense, values);
      return;
    }
    TestTensor<Exec, float> dense({values.extent(0), values.extent(1)});
    dense.fill([&](std::size_t i) { return static_cast<float>(values.values()[i]); });
    quantize(Exec(), dense.template view<2>(), slot.quantized);
    Exec().fence("kformer::Testing::quantize");
  }
};

}  // namespace kformer::Testing
