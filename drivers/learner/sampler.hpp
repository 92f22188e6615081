// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "kformer/model/generator.hpp"
#include "learner/learner.hpp"

/// \file
/// Generation with the weights of a model in training.

namespace kformer::drivers {

/// A decoder that borrows the model, with a cache and a generator.
template <class Exec, class T>
class Sampler {
 public:
  Sampler(const LlamaModel<Exec, T>& model, const LearnerTask& task, Ledger& ledger)
      : m_batch(static_cast<std::size_t>(task.sampler->batch)),
        m_decoder(model, decoder_options(task), ledger),
        m_cache(KvCache<Exec, T>::create(task.config,
                                         {.num_layers = task.config.num_hidden_layers,
                                          .batch = task.sampler->batch,
                                          .capacity = task.trainer.shape.seq_len,
                                          .max_step_tokens = task.sampler->prefill_chunk},
                                         ledger)),
        m_generator(m_decoder, *m_cache, *task.sampler, ledger) {}

  void prepare(const Exec& exec) { m_decoder.prepare(exec); }

  /// As `Learner::sample`.
  std::vector<GeneratedSequence> sample(const Exec& exec, std::span<const std::vector<std::int32_t>> prompts,
                                        std::int64_t first_stream) {
    std::vector<GeneratedSequence> all;
    for (std::size_t first = 0; first < prompts.size(); first += m_batch) {
      const auto part = prompts.subspan(first, std::min(m_batch, prompts.size() - first));
      m_generator.draw_from(first_stream + static_cast<std::int64_t>(first));
      m_generator.start(exec, {part.begin(), part.end()});
      while (m_generator.running()) m_generator.step(exec);
      all.insert(all.end(), m_generator.sequences().begin(), m_generator.sequences().end());
    }
    return all;
  }

 private:
  static DecoderOptions decoder_options(const LearnerTask& task) {
    const GeneratorOptions& options = *task.sampler;
    return {.max_rows = std::max(options.prefill_chunk, options.batch),
            .max_logit_rows = options.batch,
            .max_positions = task.trainer.shape.seq_len,
            .compute = task.trainer.layer.compute,
            .batch_invariant = task.trainer.layer.batch_invariant};
  }

  std::size_t m_batch;
  LlamaDecoder<Exec, T> m_decoder;
  std::unique_ptr<KvCache<Exec, T>> m_cache;
  Generator<Exec, T> m_generator;
};

}  // namespace kformer::drivers
