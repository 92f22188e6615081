// SPDX-License-Identifier: MIT
#include "kformer/io/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "io/adapter/config.hpp"
#include "io/adapter/gguf.hpp"
#include "io/numbers.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"

namespace kformer {

namespace {

namespace fs = std::filesystem;

constexpr const char *matrix_a = ".lora_A.weight", *matrix_b = ".lora_B.weight",
                     *magnitude_vector = ".lora_magnitude_vector";

/// The projection whose matrix or magnitudes a tensor is, if it is one of an adapter.
std::optional<Projection> projection_of(const std::string& name) {
  for (std::size_t i = 0; i < names_of<Projection>.size(); ++i) {
    const auto p = static_cast<Projection>(i);
    for (const char* array : {matrix_a, matrix_b, magnitude_vector})
      if (name.ends_with("." + Impl::module_of(p) + array)) return p;
  }
  return std::nullopt;
}

}  // namespace

std::map<std::string, std::vector<std::size_t>> adapter_tensor_shapes(const LlamaConfig& model,
                                                                      const LoraConfig& lora) {
  std::map<std::string, std::vector<std::size_t>> shapes;
  for (std::int64_t l = 0; l < model.num_hidden_layers; ++l)
    for (std::size_t i = 0; i < lora.targets.size(); ++i) {
      const auto rank = static_cast<std::size_t>(lora.targets[i].rank);
      if (rank == 0) continue;
      const auto p = static_cast<Projection>(i);
      const auto [out, in] = projection_extents(model, p);
      const std::string name = fmt::format("model.layers.{}.{}", l, Impl::module_of(p));
      shapes[name + matrix_a] = {rank, static_cast<std::size_t>(in)};
      shapes[name + matrix_b] = {static_cast<std::size_t>(out), rank};
      if (lora.magnitudes) shapes[name + magnitude_vector] = {static_cast<std::size_t>(out)};
    }
  return shapes;
}

AdapterCheckpoint AdapterCheckpoint::open(const fs::path& folder) {
  const Impl::AdapterConfig config = Impl::read_adapter_config(folder / adapter_config_name);
  AdapterCheckpoint all;
  all.m_path = folder / adapter_weights_name;
  const SafetensorsFile& file = all.m_file.emplace_back(SafetensorsFile::open(all.m_path));
  all.m_description = config.description;
  all.m_lora.rank_stabilized = config.rank_stabilized;
  all.m_lora.magnitudes = config.magnitudes;
  all.m_lora.dropout = config.dropout;
  for (const std::string& name : file.names()) {
    const auto p = projection_of(name);
    if (!p || !name.starts_with(std::string(adapter_prefix) + "model.layers."))
      throw FileError(fmt::format("'{}': tensor '{}' is no matrix A or B of a linear map in a layer",
                                  all.m_path.string(), name));
    if (!config.adapts(*p))
      throw FileError(fmt::format("'{}': tensor '{}' is there, but target_modules of {} does not have '{}'",
                                  all.m_path.string(), name, adapter_config_name, name_of(*p)));
    const TensorEntry& entry = file.at(name);
    all.require_numbers(name, stored_type_named(entry.dtype));
    const auto rank = static_cast<std::size_t>(config.rank_of(*p));
    const bool is_a = name.ends_with(matrix_a);
    if (name.ends_with(magnitude_vector)) {
      if (!config.magnitudes)
        throw FileError(fmt::format("'{}': tensor '{}' has magnitudes, but {} says that use_dora is false",
                                    all.m_path.string(), name, adapter_config_name));
      continue;
    }
    if (entry.shape.size() != 2 || entry.shape[is_a ? 0 : 1] != rank)
      throw FileError(fmt::format("'{}': tensor '{}' has the extents {}, but {} says that its rank is {}",
                                  all.m_path.string(), name, entry.shape, adapter_config_name, rank));
    all.m_lora[*p] = {config.rank_of(*p), config.alpha_of(*p)};
  }
  if (!all.m_lora.any()) throw FileError(fmt::format("'{}' has no tensors", all.m_path.string()));
  return all;
}

AdapterCheckpoint AdapterCheckpoint::open(const fs::path& path, const LlamaConfig& model) {
  AdapterCheckpoint all;
  if (fs::is_directory(path) || path.extension() != ".gguf") {
    all = open(path);
  } else {
    auto read = std::make_shared<Impl::GgufAdapter>(Impl::read_gguf_adapter(path, model));
    all.m_path = path;
    all.m_lora = read->lora;
    all.m_gguf = std::move(read);
  }
  all.check_against(model);
  return all;
}

void AdapterCheckpoint::check_against(const LlamaConfig& model) const {
  auto missing = adapter_tensor_shapes(model, m_lora);
  if (m_gguf) {
    for (const auto& [name, tensor] : m_gguf->tensors) {
      const auto found = missing.find(name);
      if (found == missing.end() || found->second != tensor.shape)
        throw FileError(fmt::format("'{}': '{}' has the extents {}, {}: the adapter belongs to another model",
                                    m_path.string(), name, tensor.shape,
                                    found == missing.end() ? "but the model has no such map"
                                                           : fmt::format("expected {}", found->second)));
      missing.erase(found);
    }
    if (!missing.empty())
      throw FileError(
          fmt::format("'{}': '{}' is missing; a linear map has an adapter in every layer or in none",
                      m_path.string(), missing.begin()->first));
    return;
  }
  for (const std::string& stored : m_file[0].names()) {
    const auto found = missing.find(stored.substr(std::string(adapter_prefix).size()));
    const auto& shape = m_file[0].at(stored).shape;
    if (found == missing.end())
      throw FileError(fmt::format("'{}': tensor '{}' belongs to no layer of the model, which has {}",
                                  m_path.string(), stored, model.num_hidden_layers));
    if (found->second != shape)
      throw FileError(
          fmt::format("'{}': tensor '{}' has the extents {}, expected {}: the adapter belongs to "
                      "another model",
                      m_path.string(), stored, shape, found->second));
    missing.erase(found);
  }
  if (!missing.empty())
    throw FileError(
        fmt::format("'{}': tensor '{}{}' is missing; a linear map has an adapter in every layer or in none",
                    m_path.string(), adapter_prefix, missing.begin()->first));
}

std::vector<double> AdapterCheckpoint::values(const std::string& name) const {
  const CheckpointTensor tensor = at(name);
  require_numbers(name, tensor.type);
  return Impl::numbers_of(tensor.type, tensor.bytes).value();
}

void AdapterCheckpoint::require_numbers(const std::string& name, const StoredType& type) const {
  const auto dtype = dtype_of_numbers(type);
  if (!dtype || *dtype == DType::i32 || *dtype == DType::u8)
    throw FileError(fmt::format("'{}': '{}' is of type {}, expected F64, F32, F16 or BF16", m_path.string(),
                                name, to_string(type)));
}

CheckpointTensor AdapterCheckpoint::at(const std::string& name) const {
  if (m_gguf) {
    const auto found = m_gguf->tensors.find(name);
    if (found == m_gguf->tensors.end())
      throw FileError(fmt::format("'{}' has no matrix '{}'", m_path.string(), name));
    return found->second;
  }
  const TensorEntry& entry = m_file[0].at(adapter_prefix + name);
  return {stored_type_named(entry.dtype), entry.shape, entry.bytes};
}

}  // namespace kformer
