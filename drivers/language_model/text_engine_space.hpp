// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "kformer/load/load_weights.hpp"
#include "language_model/text_engine.hpp"
#include "measure/timing.hpp"

/// \file
/// Definition of `make_text_engine_on`.

namespace kformer::drivers {

template <class Exec, class T>
class TextEngineOn final : public TextEngine {
 public:
  TextEngineOn(const EngineTask& task, Ledger& ledger)
      : m_ledger(ledger.shared_from_this()),
        m_decoder(task.config, task.decoder, ledger),
        m_cache(KvCache<Exec, T>::create(m_decoder.config(), task.cache, ledger)),
        m_generator(m_decoder, *m_cache, task.generator, ledger),
        m_adapter(task.adapter),
        m_adapters(task.adapters),
        m_staging(ledger.allocate(m_exec, MemoryClass::io, "TextEngine::staging", staging_of(task))) {
    if (task.logits_after) m_anew.emplace(task, m_decoder, ledger);
  }

  void load(const Checkpoint& checkpoint, const std::function<bool()>& stop) override {
    load_weights(m_exec, checkpoint, m_decoder.weights(), m_staging, *m_ledger, stop);
    if (m_adapter)
      merge_adapter(m_exec, *m_adapter, m_decoder.weights(), m_staging, *m_ledger, m_decoder.tensor_ranks());
    for (std::size_t k = 0; k < m_adapters.size(); ++k) {
      const auto matrices = m_decoder.adapters(static_cast<std::int64_t>(k));
      load_adapter(m_exec, m_adapters[k], std::span<const Parameter>(matrices), *m_ledger);
    }
    m_adapter.reset();
    m_adapters.clear();
    m_staging = {};
    m_decoder.prepare(m_exec);
    m_exec.fence("kformer-generate::load");
  }
  double start(std::vector<std::vector<std::int32_t>> prompts, const std::function<bool()>& stop,
               const std::vector<std::int32_t>& adapters) override {
    const auto call = [&] { m_generator.start(m_exec, std::move(prompts), stop, adapters); };
    return measure::seconds_of(m_exec, call);
  }
  bool running() const override { return m_generator.running(); }
  double step() override {
    const auto call = [&] { m_generator.step(m_exec); };
    return measure::seconds_of(m_exec, call);
  }
  void stop(std::int64_t sequence) override { m_generator.stop(sequence); }
  const std::vector<GeneratedSequence>& sequences() const override { return m_generator.sequences(); }
  std::int64_t computed_tokens() const override { return m_generator.computed_tokens(); }
  std::vector<std::vector<double>> step_logits() const override { return m_generator.step_logits(m_exec); }
  std::vector<std::vector<double>> final_logits() override { return m_generator.final_logits(m_exec); }
  std::vector<double> logits_after(const std::vector<std::int32_t>& tokens, std::int32_t adapter) override {
    m_anew->generator.start(m_exec, {tokens}, {}, {adapter});
    return m_anew->generator.final_logits(m_exec).front();
  }
  double cache_bytes(std::int64_t sequence) const override {
    const LlamaConfig& c = m_decoder.config();
    const double heads = static_cast<double>(2 * c.num_hidden_layers * c.num_key_value_heads);
    const double head = m_cache->options().kind == KvCacheKind::int8
                            ? static_cast<double>(c.head_dim) + sizeof(compute_t<T>)
                            : static_cast<double>(c.head_dim) * sizeof(T);
    return static_cast<double>(visible(sequence)) * heads * head;
  }
  std::size_t weight_bytes() const override { return m_decoder.weight_bytes(); }
  bool exact_cache() const override { return m_cache->exact(); }

 private:
  using memory_space = typename Exec::memory_space;

  // Stored tokens that the next one sees besides itself; a cache may keep more.
  std::int64_t visible(std::int64_t sequence) const {
    const KvCacheOptions& cache = m_cache->options();
    std::int64_t seen = m_cache->stored(sequence);
    if (cache.kind == KvCacheKind::window) seen = std::min(seen, cache.sinks + cache.window - 1);
    if (const std::int64_t window = m_decoder.config().sliding_window; window > 0)
      seen = std::min(seen, window - 1);
    return seen;
  }

  static std::size_t staging_of(const EngineTask& task) {
    const std::size_t of_adapter =
        task.adapter ? merge_staging_bytes(*task.adapter, task.config, task.dtype) : 0;
    return std::max(task.staging_bytes, of_adapter);
  }

  // One sequence with its own cache, always from its beginning.
  struct Anew {
    std::unique_ptr<KvCache<Exec, T>> cache;
    Generator<Exec, T> generator;

    Anew(const EngineTask& task, LlamaDecoder<Exec, T>& decoder, Ledger& ledger)
        : cache(KvCache<Exec, T>::create(decoder.config(), contiguous(task), ledger)),
          generator(decoder, *cache, {.prefill_chunk = task.generator.prefill_chunk}, ledger) {}
    static KvCacheOptions contiguous(const EngineTask& task) {
      return {.num_layers = task.config.num_hidden_layers,
              .capacity = task.decoder.max_positions,
              .max_step_tokens = task.generator.prefill_chunk};
    }
  };

  std::shared_ptr<Ledger> m_ledger;
  Exec m_exec;
  LlamaDecoder<Exec, T> m_decoder;
  std::unique_ptr<KvCache<Exec, T>> m_cache;
  Generator<Exec, T> m_generator;
  std::optional<Anew> m_anew;
  std::optional<AdapterCheckpoint> m_adapter;  // until it is part of the weights
  std::vector<AdapterCheckpoint> m_adapters;   // until they are loaded
  MemoryBlock<memory_space> m_staging;         // until the weights are loaded
};

template <class Exec>
std::unique_ptr<TextEngine> make_text_engine_on(const EngineTask& task, Ledger& ledger) {
  return dispatch_dtype(task.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<TextEngine> {
    return std::make_unique<TextEngineOn<Exec, T>>(task, ledger);
  });
}

}  // namespace kformer::drivers
