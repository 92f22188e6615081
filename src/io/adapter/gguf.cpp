// SPDX-License-Identifier: MIT
#include "io/adapter/gguf.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>

#include "io/checkpoint/gguf_names.hpp"
#include "io/gguf/writer.hpp"
#include "io/row_order.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"
#include "kformer/io/adapter.hpp"
#include "kformer/io/gguf.hpp"

namespace kformer {

namespace Impl {

namespace {

constexpr const char* type_key = "general.type";
constexpr const char* architecture_key = "general.architecture";
constexpr const char* adapter_type_key = "adapter.type";
constexpr const char* alpha_key = "adapter.lora.alpha";
constexpr const char* activation_key = "adapter.alora.invocation_tokens";

/// llama.cpp's name of the family.
const char* architecture_of(const LlamaConfig& model) {
  return model.qk_norm ? "qwen3" : model.attention_bias ? "qwen2" : "llama";
}

/// The heads of a projection whose rows, which are those of B, are in the order of interleaved RoPE; otherwise 0.
std::size_t interleaved_heads(const LlamaConfig& model, Projection p) {
  if (std::string_view(architecture_of(model)) != "llama") return 0;
  if (p == Projection::q) return static_cast<std::size_t>(model.num_attention_heads);
  return p == Projection::k ? static_cast<std::size_t>(model.num_key_value_heads) : 0;
}

constexpr std::array<std::string_view, names_of<Projection>.size()> gguf_modules = {
    "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"};

/// A matrix of an adapter.
struct Matrix {
  std::string name;  ///< in a model
  Projection projection;
  bool is_a;
};

/// Nothing for tensors that are none.
std::optional<Matrix> matrix_named(const std::string& gguf_name) {
  const bool is_a = gguf_name.ends_with(".lora_a");
  if (!is_a && !gguf_name.ends_with(".lora_b")) return std::nullopt;
  const auto weight = published_name(gguf_name.substr(0, gguf_name.rfind('.')));
  if (!weight || !weight->ends_with(".weight")) return std::nullopt;
  const std::string map = weight->substr(0, weight->rfind('.'));
  for (std::size_t i = 0; i < names_of<Projection>.size(); ++i)
    if (const auto p = static_cast<Projection>(i); map.ends_with("." + module_of(p)))
      return Matrix{map + (is_a ? ".lora_A.weight" : ".lora_B.weight"), p, is_a};
  return std::nullopt;
}

class Reader {
 public:
  Reader(const std::filesystem::path& path, const LlamaConfig& model)
      : m_file(GgufFile::open(path)), m_model(model) {}

  GgufAdapter read() {
    require_text(type_key, "adapter");
    require_text(adapter_type_key, "lora");
    require_text(architecture_key, architecture_of(m_model));
    // An activated LoRA is for the tokens behind these alone.
    if (const auto tokens = m_file.find_integers(activation_key); tokens && !tokens->empty())
      refuse(fmt::format("metadata '{}' must be empty or missing: adapters of some tokens are not supported",
                         activation_key));
    const auto alpha = m_file.find_number(alpha_key);
    if (!alpha || !std::isfinite(*alpha)) refuse(fmt::format("metadata '{}' must be a number", alpha_key));
    for (const std::string& name : m_file.names()) add(name, *alpha);
    if (m_all.tensors.empty()) refuse("it has no tensors");
    return std::move(m_all);
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const {
    throw FileError(fmt::format("'{}': {}", m_file.source(), reason));
  }
  void require_text(const char* key, const char* expected) const {
    const auto found = m_file.find_string(key);
    if (found != expected)
      refuse(fmt::format("metadata '{}' is {}, expected \"{}\"", key, found ? '"' + *found + '"' : "missing",
                         expected));
  }

  void add(const std::string& name, double alpha) {
    const auto matrix = matrix_named(name);
    if (!matrix) refuse(fmt::format("tensor '{}' is no matrix A or B of a linear map in a layer", name));
    CheckpointTensor tensor = *m_file.find(name);
    if (!dtype_of_numbers(tensor.type))
      refuse(fmt::format("tensor '{}' is of type {}, expected F64, F32, F16 or BF16", name,
                         to_string(tensor.type)));
    if (tensor.shape.size() != 2) refuse(fmt::format("tensor '{}' is no matrix", name));
    const std::size_t rank = tensor.shape[matrix->is_a ? 0 : 1];
    LoraTarget& target = m_all.lora[matrix->projection];
    if (rank == 0 || (target.rank != 0 && static_cast<std::size_t>(target.rank) != rank))
      refuse(fmt::format("tensor '{}' has rank {}, but others of its kind have {}", name, rank, target.rank));
    // Without alpha, or with 0, the factor is 1.
    target = {static_cast<std::int64_t>(rank), alpha == 0 ? static_cast<double>(rank) : alpha};
    const std::size_t heads = matrix->is_a ? 0 : interleaved_heads(m_model, matrix->projection);
    const std::size_t rows = tensor.shape[0];
    if (heads > 0 && (rows == 0 || rows % (2 * heads) != 0))
      refuse(fmt::format("tensor '{}' does not have a whole number of row pairs for each of {} heads", name,
                         heads));
    m_all.bytes.push_back(heads > 0 ? half_split_rows(tensor.bytes, rows, heads)
                                    : std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
    tensor.bytes = m_all.bytes.back();
    m_all.tensors.emplace(matrix->name, std::move(tensor));
  }

  GgufFile m_file;
  const LlamaConfig& m_model;
  GgufAdapter m_all;
};

}  // namespace

GgufAdapter read_gguf_adapter(const std::filesystem::path& path, const LlamaConfig& model) {
  return Reader(path, model).read();
}

}  // namespace Impl

void write_gguf_adapter(const std::filesystem::path& path, const LlamaConfig& model, const LoraConfig& lora,
                        const std::function<std::vector<double>(const std::string& name)>& values) {
  using namespace Impl;
  if (!lora.any()) throw Error("kformer::write_gguf_adapter: no projection has an adapter");
  if (lora.magnitudes)
    throw NotSupported(
        "kformer::write_gguf_adapter: the adapter has magnitudes (DoRA), which the format does not have; merge "
        "it into the weights");
  // The format has one alpha: B takes what distinguishes the factor of a projection from alpha over its rank.
  std::optional<double> alpha;
  GgufWriter writer;
  writer.add(architecture_key, architecture_of(model));
  writer.add(type_key, "adapter");
  writer.add(adapter_type_key, "lora");
  for (std::size_t i = 0; i < lora.targets.size() && !alpha; ++i)
    if (lora.targets[i].rank > 0)
      alpha = static_cast<float>(lora.scale(static_cast<Projection>(i)) *
                                 static_cast<double>(lora.targets[i].rank));
  // An alpha of 0 means a factor of 1.
  if (*alpha == 0) alpha = 1;
  writer.add(alpha_key, static_cast<float>(*alpha));
  for (std::int64_t l = 0; l < model.num_hidden_layers; ++l)
    for (std::size_t i = 0; i < lora.targets.size(); ++i) {
      const auto p = static_cast<Projection>(i);
      const auto rank = static_cast<std::size_t>(lora[p].rank);
      if (rank == 0) continue;
      const std::string name = fmt::format("model.layers.{}.{}.lora_", l, module_of(p));
      const std::string gguf_name = fmt::format("blk.{}.{}.weight.lora_", l, gguf_modules[i]);
      const auto a = values(name + "A.weight"), b = values(name + "B.weight");
      writer.add(gguf_name + "a", rank, std::vector<float>(a.begin(), a.end()));
      const double factor = lora.scale(p) * static_cast<double>(rank) / *alpha;
      const std::size_t heads = interleaved_heads(model, p), rows = b.size() / rank;
      const std::size_t head_dim = heads > 0 ? rows / heads : rows;
      std::vector<float> stored(b.size());
      for (std::size_t r = 0; r < rows; ++r) {
        const std::size_t to = heads > 0 ? r - r % head_dim + interleaved_row(r % head_dim, head_dim) : r;
        for (std::size_t k = 0; k < rank; ++k)
          stored[to * rank + k] = static_cast<float>(factor * b[r * rank + k]);
      }
      writer.add(gguf_name + "b", rows, std::move(stored));
    }
  writer.write(path);
}

}  // namespace kformer
