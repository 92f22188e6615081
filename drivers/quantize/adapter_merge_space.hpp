// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <numeric>

#include "kformer/load/llama_config.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/model/generator.hpp"
#include "quantize/adapter_merge.hpp"

/// \file
/// Definition of `make_adapter_merge_on`.

namespace kformer::drivers {

template <class Exec>
class AdapterMergeOn final : public AdapterMerge {
 public:
  AdapterMergeOn(const Checkpoint& source, const AdapterCheckpoint& adapter)
      : m_source(source), m_adapter(adapter) {}

  MergedTensor merged(const std::string& name, const CheckpointTensor& tensor) override {
    return tensor.type == StoredType(DType::f64) ? sum<double>(name, tensor) : sum<float>(name, tensor);
  }

  std::vector<std::int32_t> tokens(std::int32_t first, std::int64_t count) override {
    Model model(m_exec, m_source, AdapterForm::live, m_adapter, count, *m_ledger);
    GeneratorOptions options{.max_new_tokens = count - 1, .prefill_chunk = 1};
    options.sampling = {.temperature = 1, .seed = 1};
    Generator<Exec, float> generator(model.decoder, *model.cache, options, *m_ledger);
    generator.start(m_exec, {{first}});
    while (generator.running()) generator.step(m_exec);
    return generator.sequences().front().tokens;
  }

  Logits logits(const Checkpoint& checkpoint, AdapterForm use,
                const std::vector<std::int32_t>& tokens) override {
    const auto count = static_cast<std::int64_t>(tokens.size());
    Model model(m_exec, checkpoint, use, m_adapter, count, *m_ledger);
    Arena<Space> arena;
    BlockVector<Space, std::int32_t> ids, places;
    arena.add(ids, count);
    arena.add(places, count);
    const auto block = arena.allocate(*m_ledger, MemoryClass::workspace, "kformer-quantize::tokens");
    std::vector<std::int32_t> numbers(tokens.size());
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto upload = [&](const auto& to, const std::vector<std::int32_t>& from) {
      transfer<Space, Kokkos::HostSpace>(m_exec, *m_ledger, to.data(), from.data(),
                                         from.size() * sizeof(std::int32_t));
    };
    upload(ids, tokens);
    upload(places, numbers);
    const std::vector<std::int64_t> fresh{count};
    model.cache->begin_step(m_exec, fresh);
    model.decoder.step(m_exec, ids, places, *model.cache);
    model.cache->end_step(m_exec);
    Logits all;
    for (std::int64_t first = 0; first < count; first += most_rows) {
      const std::pair rows(first, std::min(count, first + most_rows));
      const auto some = model.decoder.logits(m_exec, Kokkos::subview(places, rows));
      std::vector<float> host(some.extent(0) * some.extent(1));
      transfer<Kokkos::HostSpace, Space>(m_exec, *m_ledger, host.data(), some.data(),
                                         host.size() * sizeof(float));
      m_exec.fence("kformer-quantize::logits");
      for (std::size_t r = 0; r < some.extent(0); ++r) {
        const auto row = host.begin() + static_cast<std::ptrdiff_t>(r * some.extent(1));
        all.emplace_back(row, row + static_cast<std::ptrdiff_t>(some.extent(1)));
      }
    }
    return all;
  }

 private:
  using Space = typename Exec::memory_space;
  static constexpr std::int64_t most_rows = 16;  // whose logits exist at once

  // Computed in C.
  template <class C>
  MergedTensor sum(const std::string& name, const CheckpointTensor& tensor) {
    const auto rows = static_cast<std::int64_t>(tensor.shape.at(0)),
               cols = static_cast<std::int64_t>(tensor.shape.at(1));
    const auto bytes = static_cast<std::size_t>(rows * cols) * sizeof(C);
    const auto memory = m_ledger->allocate<Space>(MemoryClass::workspace, "kformer-quantize::merge", bytes);
    const auto expanding =
        m_ledger->allocate<Space>(MemoryClass::io, "kformer-quantize::staging",
                                  quantized_format_of(tensor.type) ? tensor.bytes.size() : 0);
    const auto dense = kformer::Impl::matrix_in<C>(memory, 0, rows, cols);
    load_dense(m_exec, tensor, tensor_ref(dense), expanding, *m_ledger);
    const auto config = llama_config(m_source.model());
    const auto staging = m_ledger->allocate<Space>(MemoryClass::io, "kformer-quantize::adapter",
                                                   merge_staging_bytes(m_adapter, config, dtype_of<C>));
    merge_adapter(m_exec, m_adapter, {{name, tensor_ref(dense), {}}}, staging, *m_ledger);
    MergedTensor all{dtype_of<C>, std::vector<std::byte>(bytes)};
    transfer<Kokkos::HostSpace, Space>(m_exec, *m_ledger, all.bytes.data(), dense.data(), bytes);
    m_exec.fence("kformer-quantize::merge");
    return all;
  }

  // A decoder of one sequence with its cache, loaded.
  struct Model {
    LlamaDecoder<Exec, float> decoder;
    std::unique_ptr<KvCache<Exec, float>> cache;

    Model(const Exec& exec, const Checkpoint& checkpoint, AdapterForm use, const AdapterCheckpoint& adapter,
          std::int64_t count, Ledger& ledger)
        : decoder(llama_config(checkpoint.model()), options(checkpoint, use, adapter, count), ledger),
          cache(KvCache<Exec, float>::create(
              decoder.config(),
              {.num_layers = decoder.config().num_hidden_layers, .capacity = count, .max_step_tokens = count},
              ledger)) {
      load_weights(exec, checkpoint, decoder, ledger);
      if (use == AdapterForm::live) {
        const auto matrices = decoder.adapters(0);
        load_adapter(exec, adapter, std::span<const Parameter>(matrices), ledger);
      } else if (use == AdapterForm::merged) {
        const auto staging = ledger.allocate<Space>(MemoryClass::io, "kformer-quantize::adapter",
                                                    merge_staging_bytes(adapter, decoder.config(), DType::f32));
        merge_adapter(exec, adapter, decoder.weights(), staging, ledger);
      }
      decoder.prepare(exec);
      exec.fence("kformer-quantize::load");
    }
    static DecoderOptions options(const Checkpoint& checkpoint, AdapterForm use,
                                  const AdapterCheckpoint& adapter, std::int64_t count) {
      DecoderOptions all{
          .max_rows = count, .max_logit_rows = std::min(count, most_rows), .max_positions = count};
      if (use != AdapterForm::merged) all.formats = quantized_weights(checkpoint);
      if (use == AdapterForm::live) all.adapters = {adapter.lora()};
      return all;
    }
  };

  const Checkpoint& m_source;
  const AdapterCheckpoint& m_adapter;
  Exec m_exec;
  std::shared_ptr<Ledger> m_ledger = Ledger::create();
};

template <class Exec>
std::unique_ptr<AdapterMerge> make_adapter_merge_on(const Checkpoint& source,
                                                    const AdapterCheckpoint& adapter) {
  return std::make_unique<AdapterMergeOn<Exec>>(source, adapter);
}

}  // namespace kformer::drivers
