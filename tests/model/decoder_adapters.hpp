// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <optional>

#include "kformer/model/llama_model.hpp"
#include "model/decoding.hpp"
#include "model/model_cases.hpp"

/// \file
/// Adapters for tests of decoders.

namespace kformer::Testing {

/// Other ranks and scales for each map, one without.
inline LoraConfig mixed() {
  LoraConfig lora = LoraConfig::all(3, 5);
  lora[Projection::q] = {.rank = 6, .alpha = 2};
  lora[Projection::k] = {.rank = 0, .alpha = 1};
  lora[Projection::v] = {.rank = 1, .alpha = 3};
  lora.rank_stabilized = true;
  return lora;
}

inline LoraConfig only(Projection p) {
  LoraConfig lora;
  lora[p] = {.rank = 2, .alpha = 3};
  return lora;
}

/// The same with magnitudes (DoRA).
inline LoraConfig scaled(LoraConfig lora) {
  lora.magnitudes = true;
  return lora;
}

template <class T>
void write(const LlamaModel<Exec, T>& model, const ModelInputs& inputs) {
  for (const auto& all : {model.parameters(), model.adapters()})
    for (const Parameter& p : all) write_parameter<T>(p.weight, inputs.weights.at(p.name));
}

/// A model, a decoder that borrows from it and a cache.
template <class T>
struct Borrowing {
  std::shared_ptr<Ledger> ledger = Ledger::create();
  std::optional<LlamaModel<Exec, T>> model;
  std::optional<LlamaDecoder<Exec, T>> decoder;
  std::unique_ptr<KvCache<Exec, T>> cache;

  std::int64_t batch;

  explicit Borrowing(const ModelInputs& inputs, LayerMode mode = LayerMode::inference,
                     std::int64_t positions = 0, std::int64_t sequences = 0, const WeightFormats& formats = {})
      : batch(std::max(sequences, inputs.shape.batch)) {
    const std::int64_t rows = inputs.shape.rows();
    model.emplace(inputs.config, inputs.shape,
                  LayerOptions{.mode = mode, .lora = inputs.lora, .formats = formats}, *ledger);
    decoder.emplace(*model,
                    DecoderOptions{.max_rows = rows,
                                   .max_logit_rows = rows,
                                   .max_positions = std::max(positions, inputs.shape.seq_len + 1)},
                    *ledger);
    write(*model, inputs);
    for (const WeightSlot& slot : model->weights())
      if (slot.is_quantized()) Decoding<T>::write(slot, inputs.weights.at(slot.name));
    decoder->prepare(Exec());
    forget();
  }
  void forget() {
    cache = KvCache<Exec, T>::create(decoder->config(),
                                     {.num_layers = decoder->config().num_hidden_layers,
                                      .batch = batch,
                                      .capacity = decoder->options().max_positions,
                                      .max_step_tokens = decoder->options().max_rows},
                                     *ledger);
  }
};

}  // namespace kformer::Testing
