// SPDX-License-Identifier: MIT
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/io/adapter.hpp"
#include "kformer/io/checkpoint.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/model/generator.hpp"

/// \file
/// A model that generates text, with its cache, behind an interface that knows neither execution space nor
/// precision.

namespace kformer::drivers {

/// The description of an engine, which also determines its memory.
struct EngineTask {
  LlamaConfig config;                          ///< of the model
  DType dtype = DType::f32;                    ///< activations and dense weights
  DecoderOptions decoder;                      ///< sizes of a step, formats of weights
  KvCacheOptions cache;                        ///< what is kept of the tokens
  GeneratorOptions generator;                  ///< batch, chunks, sampling
  std::size_t staging_bytes = 0;               ///< of the largest weight that is expanded when it is loaded
  std::optional<AdapterCheckpoint> adapter{};  ///< to be added to the weights
  std::vector<AdapterCheckpoint> adapters{};   ///< to stay beside them: those of `decoder.adapters`
  bool logits_after = false;                   ///< whether `TextEngine::logits_after` is wanted: a cache more
};

/// A model that generates text.
class TextEngine {
 public:
  virtual ~TextEngine() = default;
  /// Reads the weights; `stop` is called between tensors.
  virtual void load(const Checkpoint& checkpoint, const std::function<bool()>& stop) = 0;
  /// As `Generator::start`; seconds that it took.
  virtual double start(std::vector<std::vector<std::int32_t>> prompts, const std::function<bool()>& stop,
                       const std::vector<std::int32_t>& adapters) = 0;
  /// As `Generator::running`.
  virtual bool running() const = 0;
  /// As `Generator::step`; seconds that it took.
  virtual double step() = 0;
  /// As `Generator::stop`.
  virtual void stop(std::int64_t sequence) = 0;
  /// As `Generator::sequences`.
  virtual const std::vector<GeneratedSequence>& sequences() const = 0;
  /// As `Generator::computed_tokens`.
  virtual std::int64_t computed_tokens() const = 0;
  /// As `Generator::step_logits`.
  virtual std::vector<std::vector<double>> step_logits() const = 0;
  /// As `Generator::final_logits`.
  virtual std::vector<std::vector<double>> final_logits() = 0;
  /// Logits after the last of some tokens, computed only from these; for an engine with `recompute`. `adapter`: as
  /// of `GeneratedSequence`.
  virtual std::vector<double> logits_after(const std::vector<std::int32_t>& tokens, std::int32_t adapter) = 0;
  /// Bytes of the keys and values that the next token of a sequence sees, besides its own.
  virtual double cache_bytes(std::int64_t sequence) const = 0;
  /// As `LlamaDecoder::weight_bytes`.
  virtual std::size_t weight_bytes() const = 0;
  /// Whether the cache gives the results of an unlimited one.
  virtual bool exact_cache() const = 0;
};

/// An engine on the space of that name; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
std::unique_ptr<TextEngine> make_text_engine(const std::string& space, const EngineTask& task,
                                             const std::shared_ptr<Ledger>& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<TextEngine> make_text_engine_on(const EngineTask& task, Ledger& ledger);

/// The memory that an engine would need, by class, without allocating it.
std::shared_ptr<const Ledger> forecast_of(const std::string& space, const EngineTask& task);

}  // namespace kformer::drivers
