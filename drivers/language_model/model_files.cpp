// SPDX-License-Identifier: MIT
#include "language_model/model_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "decks/train/parallel_checks.hpp"
#include "io/content_hash.hpp"
#include "kformer/load/load_weights.hpp"
#include "model/tensor/slices.hpp"

namespace kformer::drivers {

namespace {

// The path of the tokenizer beside a checkpoint.
std::filesystem::path beside(const Checkpoint& checkpoint, TokenizerFormat kind) {
  if (checkpoint.gguf() && (kind == TokenizerFormat::gguf || kind == TokenizerFormat::automatic))
    return checkpoint.gguf()->source();
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const bool hf = std::string_view(name) == "tokenizer.json";
    if (kind == TokenizerFormat::automatic || (kind == TokenizerFormat::hf) == hf)
      if (const auto path = checkpoint.folder() / name; std::filesystem::exists(path)) return path;
  }
  throw FileError(
      fmt::format("{}: no tokenizer found beside the checkpoint (format \"{}\"); set tokenizer.path",
                  checkpoint.folder().string(), name_of(kind)));
}

// The matrix whose quantised blocks ranks would have to share: a sentence, which begins with the key, or nothing.
std::string shared_block(const Checkpoint& checkpoint, std::int64_t tensor) {
  if (tensor == 1) return {};
  const auto shapes = model_tensor_shapes(checkpoint.model());
  for (const auto& [name, format] : quantized_weights(checkpoint)) {
    const bool rows = Impl::divided_axis(name) == 0, alone = has_separate_rows(format);
    const std::int64_t own = static_cast<std::int64_t>(shapes.at(name)[1]) / tensor;
    if (alone && (rows || own % weights_per_block(format) == 0)) continue;
    return fmt::format(
        "'parallel.tensor' = {} ranks would share blocks of {}, which is quantised ({}) in the "
        "checkpoint of 'weights.path'; expand it first{}",
        tensor, name, to_string(format), alone ? ", or take another number of ranks" : "");
  }
  return {};
}

}  // namespace

Checkpoint open_checkpoint(const WeightsTable& weights) {
  Checkpoint checkpoint = Checkpoint::open(weights.path, weights.format);
  checkpoint.check_against(checkpoint.model());
  return checkpoint;
}

void require_divided(const PlanParallelTable& table, const LanguageModelTable& model,
                     const Checkpoint* checkpoint, std::string_view program) {
  std::string fault = Impl::schema::undivided_extent(table, model);
  if (fault.empty() && checkpoint) fault = shared_block(*checkpoint, table.tensor);
  if (!fault.empty()) throw NotSupported(fmt::format("{}: {}", program, fault));
}

AdapterCheckpoint open_adapter(const std::filesystem::path& path, const LlamaConfig& model) {
  return AdapterCheckpoint::open(path, model);
}

std::string fingerprint_of(const Checkpoint& checkpoint) {
  constexpr std::size_t parts = 4, most = 4096;
  std::string text;
  for (const auto& [name, shape] : model_tensor_shapes(checkpoint.model())) {
    const CheckpointTensor* tensor = checkpoint.find(name);
    if (tensor == nullptr) continue;
    text += name;
    for (std::size_t part = 0; part < parts; ++part) {
      const auto rest = tensor->bytes.subspan(tensor->bytes.size() / parts * part);
      text += Impl::hash_of(rest.first(std::min(most, rest.size()))).text();
    }
    checkpoint.release(name);
  }
  return Impl::hash_of(text).text();
}

std::string contents_of(const Checkpoint& checkpoint) {
  return model_config_json(checkpoint.model()) + fingerprint_of(checkpoint);
}

std::string contents_of(const AdapterCheckpoint& adapter, const LlamaConfig& model) {
  std::string text = adapter_config_json(adapter.lora(), {});
  for (const auto& [name, shape] : adapter_tensor_shapes(model, adapter.lora())) {
    const CheckpointTensor tensor = adapter.at(name);
    text += fmt::format("{} {} {}\n", name, to_string(tensor.type), Impl::hash_of(tensor.bytes).text());
  }
  return Impl::hash_of(text).text();
}

FrozenWeights frozen_weights(const Checkpoint* checkpoint, const LlamaConfig& model, WeightStorage storage,
                             bool keep, DType dtype) {
  FrozenWeights weights;
  const WeightFormats stored =
      checkpoint ? formats_of_projections(quantized_weights(*checkpoint), model.num_hidden_layers)
                 : WeightFormats();
  const auto wanted = format_of(storage);
  if (!wanted && keep) weights.formats = stored;
  for (std::int64_t l = 0; wanted && l < model.num_hidden_layers; ++l)
    for (std::size_t i = 0; i < names_of<Projection>.size(); ++i) {
      const auto p = static_cast<Projection>(i);
      const std::string name = fmt::format("model.layers.{}.{}", l, projection_weight_name(p));
      if (const auto found = stored.find(name); found != stored.end() && found->second != *wanted)
        throw NotSupported(
            fmt::format("kformer-train: precision.weights = \"{}\", but {} is quantised to {} already; set "
                        "\"same\", or name a checkpoint with dense weights",
                        name_of(storage), name, to_string(found->second)));
      weights.formats[name] = *wanted;
      if (const auto [rows, columns] = projection_extents(model, p); !checkpoint)
        weights.staging_bytes =
            std::max(weights.staging_bytes, static_cast<std::size_t>(rows * columns) * size_of(dtype));
    }
  if (checkpoint) weights.staging_bytes = staging_bytes(*checkpoint, weights.formats);
  return weights;
}

std::string adapter_text(const LoraConfig& lora) {
  std::string text;
  for (std::size_t i = 0; i < lora.targets.size(); ++i)
    if (const LoraTarget& t = lora.targets[i]; t.rank > 0)
      text += fmt::format("{}{} {} x {:.4g}", text.empty() ? "" : ", ", names_of<Projection>[i], t.rank,
                          lora.scale(static_cast<Projection>(i)));
  if (lora.magnitudes) text += ", magnitudes";
  return text;
}

std::unique_ptr<const Tokenizer> open_tokenizer(const TokenizerTable& table, const Checkpoint& checkpoint) {
  if (table.format == TokenizerFormat::byte) return kformer::open_tokenizer(TokenizerFormat::byte, {});
  const auto path = table.path.empty() ? beside(checkpoint, table.format) : table.path;
  return kformer::open_tokenizer(table.format, path);
}

}  // namespace kformer::drivers
