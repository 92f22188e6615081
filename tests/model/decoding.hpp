// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <memory>
#include <random>

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
    cache = KvCache<Exec, T>::create(decoder.config(), kept, *ledger);
    for (const WeightSlot& slot : decoder.weights())
      write(slot, part_of_array(inputs.weights.at(slot.name), parameter_of(slot)));
    decoder.prepare(Exec());
  }

  // Its name and extents.
  static Parameter parameter_of(const WeightSlot& slot) {
    Parameter p{slot.name, slot.dense, {}};
    p.slice = slot.slice;
    if (!slot.is_quantized()) return p;
    p.weight.rank = 2;
    for (const int axis : {0, 1}) p.weight.extent[axis] = slot.extent(axis);
    return p;
  }
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

/// Every matrix of a model in one format.
inline WeightFormats all_in(const ModelInputs& inputs, QuantizedFormat format) {
  WeightFormats formats;
  for (const auto& [name, t] : inputs.weights)
    if (t.rank() == 2) formats[name] = format;
  return formats;
}

/// The model with its matrices as the format has them.
inline ModelInputs dequantized(const ModelInputs& inputs, const WeightFormats& formats) {
  ModelInputs copy = inputs;
  for (auto& [name, t] : copy.weights) {
    const auto format = formats.find(name);
    if (format == formats.end()) continue;
    const auto bytes = quantized_bytes(format->second, t.extent(0), t.extent(1));
    const Kokkos::View<std::byte*, Exec::memory_space> blocks("kformer::Testing::blocks", bytes);
    TestTensor<Exec, float> dense({t.extent(0), t.extent(1)});
    dense.fill([&](std::size_t i) { return static_cast<float>(t.values()[i]); });
    const QuantizedOutput matrix{format->second, blocks.data(), t.extent(0), t.extent(1)};
    quantize(Exec(), dense.view<2>(), matrix);
    TestTensor<Exec, double> back({t.extent(0), t.extent(1)});
    dequantize(Exec(), matrix, back.view<2>());
    Exec().fence("kformer::Testing::dequantize");
    t.values() = back.read<double>().values();
  }
  return copy;
}

/// The logits of every token of a batch whose sequences are cut into steps at random.
/// `adapters`: of each sequence, if they are chosen.
template <class T>
HostTensor<oracle_t<T>> stepwise_logits(const ModelInputs& inputs, LlamaDecoder<Exec, T>& decoder,
                                        KvCache<Exec, T>& cache, std::mt19937& generator,
                                        const std::vector<std::int32_t>& adapters = {}) {
  const std::int64_t batch = inputs.shape.batch, seq = inputs.shape.seq_len;
  HostTensor<oracle_t<T>> all({batch * seq, inputs.config.vocab_size});
  std::vector<std::int64_t> done(static_cast<std::size_t>(batch), 0), fresh(done);
  while (std::ranges::any_of(done, [&](std::int64_t n) { return n < seq; })) {
    std::vector<std::int32_t> ids, positions, rows, chosen;
    std::vector<std::int64_t> at;
    for (std::size_t b = 0; b < done.size(); ++b) {
      fresh[b] = std::min<std::int64_t>(seq - done[b], generator() % 4);
      for (std::int64_t i = 0; i < fresh[b]; ++i) {
        at.push_back(static_cast<std::int64_t>(b) * seq + done[b] + i);
        ids.push_back(inputs.ids[static_cast<std::size_t>(at.back())]);
        positions.push_back(static_cast<std::int32_t>(done[b] + i));
        rows.push_back(static_cast<std::int32_t>(rows.size()));
        if (!adapters.empty()) chosen.push_back(adapters[b]);
      }
      done[b] += fresh[b];
    }
    if (ids.empty()) continue;
    const auto upload = [](const std::vector<std::int32_t>& values) {
      TestTensor<Exec, std::int32_t> t({static_cast<std::int64_t>(values.size())}, Rows::packed);
      t.fill([&](std::size_t i) { return values[i]; });
      return t;
    };
    const auto id = upload(ids), position = upload(positions), row = upload(rows), choice = upload(chosen);
    cache.begin_step(Exec(), fresh);
    decoder.step(Exec(), id.template view<1>(), position.template view<1>(), cache, choice.template view<1>());
    cache.end_step(Exec());
    const auto logits = decoder.logits(Exec(), row.template view<1>());
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), logits);
    for (std::size_t r = 0; r < at.size(); ++r)
      for (std::int64_t v = 0; v < inputs.config.vocab_size; ++v)
        all(at[r], v) =
            static_cast<oracle_t<T>>(static_cast<compute_t<T>>(host(r, static_cast<std::size_t>(v))));
  }
  return all;
}

}  // namespace kformer::Testing
