// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <memory>
#include <optional>
#include <set>

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

/// Adapters of one model, which has none itself.
struct SeveralAdapters {
  std::vector<LoraConfig> configs{mixed(), LoraConfig::all(4, 8), only(Projection::o)};
  ModelInputs base;
  std::vector<ModelInputs> adapted;  // the base with each of them

  // `scaled`: those with magnitudes.
  template <class T>
  static SeveralAdapters random(const LlamaConfig& config, LayerShape shape, unsigned seed,
                                const std::set<std::size_t>& scaled = {}) {
    SeveralAdapters all;
    for (const std::size_t k : scaled) all.configs[k].magnitudes = true;
    all.base = ModelInputs::random(config, shape, seed).template rounded<T>();
    for (const LoraConfig& lora : all.configs) {
      ModelInputs& one = all.adapted.emplace_back(all.base);
      one.lora = lora;
      for (const auto& [name, t] :
           ModelInputs::random(config, shape, ++seed, lora).template rounded<T>().weights)
        if (name.find(".lora_") != name.npos) one.weights[name] = t;
    }
    return all;
  }

  const ModelInputs& of(std::int32_t adapter) const {
    return adapter < 0 ? base : adapted[static_cast<std::size_t>(adapter)];
  }

  /// Logits of a batch whose sequences have these adapters.
  template <class T>
  HostTensor<naive_t<T>> reference(const std::vector<std::int32_t>& adapters) const {
    const std::int64_t seq = base.shape.seq_len;
    HostTensor<naive_t<T>> all({base.shape.rows(), base.config.vocab_size});
    for (std::size_t s = 0; s < adapters.size(); ++s) {
      ModelInputs one = of(adapters[s]);
      one.shape = {1, seq};
      const auto first = static_cast<std::int64_t>(s) * seq;
      one.ids = {base.ids.begin() + first, base.ids.begin() + first + seq};
      one.targets = one.ids;
      const auto logits = model_reference<naive_t<T>, T>(one).logits;
      std::ranges::copy(logits.values(), all.values().begin() + first * base.config.vocab_size);
    }
    return all;
  }
};

/// Values to an array whose rows may lie apart.
template <class T>
void write_rows(const TensorRef& to, const HostTensor<double>& values) {
  if (to.rank == 1) return write_parameter<T>(to, values);
  BOOST_REQUIRE(to.has_extents({values.extent(0), values.extent(1)}));
  for (std::int64_t r = 0; r < values.extent(0); ++r) {
    HostTensor<double> row({1, values.extent(1)});
    for (std::int64_t i = 0; i < values.extent(1); ++i) row(0, i) = values(r, i);
    write_parameter<T>(Impl::rows_of(to, r, 1), row);
  }
}

/// Writes some of the adapters to a decoder that has as many.
template <class T>
void write_adapters(Decoding<T>& run, const SeveralAdapters& all, const std::vector<std::size_t>& which) {
  for (std::size_t i = 0; i < which.size(); ++i)
    for (const Parameter& p : run.decoder.adapters(static_cast<std::int64_t>(i)))
      write_rows<T>(p.weight, part_of_array(all.adapted[which[i]].weights.at(p.name), p));
  run.decoder.update_gains(Exec());
}

/// A decoder that has some of the adapters, and a cache.
template <class T>
Decoding<T> decoding_with(const SeveralAdapters& all, const std::vector<std::size_t>& which,
                          const WeightFormats& formats = {}, std::int64_t positions = 0,
                          const std::shared_ptr<Communicator>& tensor = {}) {
  DecoderOptions options{.max_rows = all.base.shape.rows(),
                         .max_logit_rows = all.base.shape.rows(),
                         .max_positions = std::max(positions, all.base.shape.seq_len + 1),
                         .formats = formats,
                         .tensor = tensor};
  for (const std::size_t k : which) options.adapters.push_back(all.configs[k]);
  Decoding<T> run(all.base, options, {.batch = all.base.shape.batch});
  write_adapters(run, all, which);
  return run;
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
