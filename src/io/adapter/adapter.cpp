// SPDX-License-Identifier: MIT
#include "kformer/io/adapter.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "io/adapter/config.hpp"
#include "io/adapter/gguf.hpp"
#include "io/adapter/made_tensors.hpp"
#include "io/numbers.hpp"
#include "kformer/core/error.hpp"
#include "kformer/core/stored_type.hpp"

namespace kformer {

namespace {

namespace fs = std::filesystem;

constexpr const char *matrix_a = ".lora_A.weight", *matrix_b = ".lora_B.weight",
                     *magnitude_vector = ".lora_magnitude_vector";

/// What a tensor of an adapter is.
struct AdapterPart {
  Impl::LayerMap map;
  const char* array;  ///< `matrix_a`, `matrix_b` or `magnitude_vector`

  /// Without the layer.
  std::string kind() const { return Impl::module_of(map.projection) + array; }
};

/// The part with this name in a model, if it is one.
std::optional<AdapterPart> part_named(std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  if (!name.starts_with(layers)) return std::nullopt;
  name.remove_prefix(layers.size());
  AdapterPart part{};
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), part.map.layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  name.remove_prefix(static_cast<std::size_t>(end - name.data()) + 1);
  for (std::size_t i = 0; i < names_of<Projection>.size(); ++i)
    for (const char* array : {matrix_a, matrix_b, magnitude_vector}) {
      part = {{part.map.layer, static_cast<Projection>(i)}, array};
      if (name == part.kind()) return part;
    }
  return std::nullopt;
}

CheckpointTensor as_stored(const TensorEntry& entry) {
  return {stored_type_named(entry.dtype), entry.shape, entry.bytes};
}

/// Zeros behind the rows of A or the columns of B.
CheckpointTensor padded(const CheckpointTensor& tensor, std::size_t axis, std::size_t rank,
                        std::vector<std::byte>& bytes) {
  CheckpointTensor all = tensor;
  all.shape[axis] = rank;
  const std::size_t rows = tensor.shape[0], own = rows == 0 ? 0 : tensor.bytes.size() / rows,
                    row = axis == 1 ? own / tensor.shape[1] * rank : own;
  bytes.resize(all.shape[0] * row);
  for (std::size_t r = 0; r < rows; ++r)
    std::ranges::copy(tensor.bytes.subspan(r * own, own), bytes.begin() + static_cast<std::ptrdiff_t>(r * row));
  all.bytes = bytes;
  return all;
}

/// Whether they are the same but for what the quotients and their dividends lost by rounding.
bool same_scale(double a, double b) {
  return std::abs(a - b) <= 2 * std::numeric_limits<double>::epsilon() * std::abs(a);
}

/// The matrices whose ranks are lower than those of other layers, and one of zeros for each kind.
void complete(const SafetensorsFile& file, const LoraConfig& lora, Impl::MadeTensors& made) {
  for (const std::string& stored : file.names()) {
    const std::string name = stored.substr(std::string_view(adapter_prefix).size());
    const AdapterPart part = part_named(name).value();
    CheckpointTensor tensor = as_stored(file.at(stored));
    if (part.array == magnitude_vector) continue;
    const std::size_t axis = part.array == matrix_a ? 0 : 1;
    const auto rank = static_cast<std::size_t>(lora[part.map.projection].rank);
    if (tensor.shape[axis] != rank)
      made.tensors[name] = tensor = padded(tensor, axis, rank, made.bytes.emplace_back());
    if (made.tensors.contains(part.kind())) continue;
    tensor.bytes = made.bytes.emplace_back(tensor.bytes.size());
    made.tensors[part.kind()] = std::move(tensor);
  }
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
  const auto made = std::make_shared<Impl::MadeTensors>();
  made->config = Impl::read_adapter_config(folder / adapter_config_name);
  const Impl::AdapterConfig& config = made->config;
  AdapterCheckpoint all;
  all.m_path = folder / adapter_weights_name;
  if (const fs::path pickled = folder / "adapter_model.bin"; fs::exists(pickled) && !fs::exists(all.m_path))
    throw FileError(
        fmt::format("'{}' is a pickle, which may run any program; let PEFT load the adapter and write "
                    "it again, as {}",
                    pickled.string(), adapter_weights_name));
  const SafetensorsFile& file = all.m_file.emplace_back(SafetensorsFile::open(all.m_path));
  all.m_description = config.description;
  all.m_lora.rank_stabilized = config.rank_stabilized;
  all.m_lora.magnitudes = config.magnitudes;
  all.m_lora.dropout = config.dropout;
  std::map<Projection, Impl::LayerMap> first;
  for (const std::string& name : file.names()) {
    const auto part = name.starts_with(adapter_prefix)
                          ? part_named(std::string_view(name).substr(std::string_view(adapter_prefix).size()))
                          : std::nullopt;
    if (!part)
      throw FileError(
          fmt::format("'{}': tensor '{}' is no matrix A or B of a linear map in a layer, such as "
                      "'{}model.layers.0.self_attn.q_proj{}'",
                      all.m_path.string(), name, adapter_prefix, matrix_a));
    const Impl::LayerMap& map = part->map;
    if (config.leaves_out(map))
      throw FileError(fmt::format("'{}': tensor '{}' is there, but {} says that '{}' has no adapter",
                                  all.m_path.string(), name, adapter_config_name, map.name()));
    const TensorEntry& entry = file.at(name);
    all.require_numbers(name, stored_type_named(entry.dtype));
    if (part->array == magnitude_vector) {
      if (!config.magnitudes)
        throw FileError(fmt::format("'{}': tensor '{}' has magnitudes, but {} says that use_dora is false",
                                    all.m_path.string(), name, adapter_config_name));
      continue;
    }
    const std::int64_t rank = config.rank_of(map);
    if (entry.shape.size() != 2 ||
        entry.shape[part->array == matrix_a ? 0 : 1] != static_cast<std::size_t>(rank))
      throw FileError(fmt::format("'{}': tensor '{}' has the extents {}, but {} says that its rank is {}",
                                  all.m_path.string(), name, entry.shape, adapter_config_name, rank));
    const Impl::LayerMap& other = first.emplace(map.projection, map).first->second;
    if (!same_scale(config.scale_of(map), config.scale_of(other)))
      throw FileError(
          fmt::format("'{}': the adapter of '{}' has the factor {}, and that of '{}' {}; layers may differ in "
                      "rank, but not in this factor, alpha over rank or its root",
                      (folder / adapter_config_name).string(), map.name(), config.scale_of(map), other.name(),
                      config.scale_of(other)));
    LoraTarget& target = all.m_lora[map.projection];
    if (rank > target.rank) target = {rank, config.alpha_of(map)};
  }
  if (!all.m_lora.any()) throw FileError(fmt::format("'{}' has no tensors", all.m_path.string()));
  complete(file, all.m_lora, *made);
  all.m_made = made;
  return all;
}

AdapterCheckpoint AdapterCheckpoint::open(const fs::path& path, const LlamaConfig& model) {
  AdapterCheckpoint all;
  if (fs::is_directory(path) || path.extension() != ".gguf") {
    all = open(path);
  } else {
    Impl::GgufAdapter read = Impl::read_gguf_adapter(path, model);
    all.m_path = path;
    all.m_lora = read.lora;
    all.m_made = std::make_shared<Impl::MadeTensors>(
        Impl::MadeTensors{std::move(read.tensors), std::move(read.bytes), {}});
  }
  all.check_against(model);
  return all;
}

void AdapterCheckpoint::check_against(const LlamaConfig& model) const {
  auto missing = adapter_tensor_shapes(model, m_lora);
  if (m_file.empty()) {
    for (const auto& [name, tensor] : m_made->tensors) {
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
    const std::string name = stored.substr(std::string(adapter_prefix).size());
    const auto found = missing.find(name);
    if (found == missing.end())
      throw FileError(fmt::format("'{}': tensor '{}' belongs to no layer of the model, which has {}",
                                  m_path.string(), stored, model.num_hidden_layers));
    if (const auto shape = at(name).shape; found->second != shape)
      throw FileError(
          fmt::format("'{}': tensor '{}' has the extents {}, expected {}: the adapter belongs to "
                      "another model",
                      m_path.string(), stored, shape, found->second));
    missing.erase(found);
  }
  for (const auto& [name, shape] : missing) {
    const Impl::LayerMap map = part_named(name).value().map;
    if (!m_made->config.leaves_out(map))
      throw FileError(fmt::format("'{}': tensor '{}{}' is missing; {} does not say that '{}' has no adapter",
                                  m_path.string(), adapter_prefix, name, adapter_config_name, map.name()));
    if (m_lora.magnitudes)
      throw FileError(
          fmt::format("'{}': '{}' has no adapter, but others have magnitudes (use_dora); with "
                      "magnitudes a linear map has an adapter in every layer or in none",
                      (m_path.parent_path() / adapter_config_name).string(), map.name()));
  }
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
  if (const auto found = m_made->tensors.find(name); found != m_made->tensors.end()) return found->second;
  if (m_file.empty()) throw FileError(fmt::format("'{}' has no matrix '{}'", m_path.string(), name));
  if (const TensorEntry* const entry = m_file[0].find(adapter_prefix + name)) return as_stored(*entry);
  if (const auto part = part_named(name); part && m_made->config.leaves_out(part->map))
    if (const auto zeros = m_made->tensors.find(part->kind()); zeros != m_made->tensors.end())
      return zeros->second;
  return as_stored(m_file[0].at(adapter_prefix + name));
}

}  // namespace kformer
