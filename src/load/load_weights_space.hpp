// SPDX-License-Identifier: MIT
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "io/atomic_file.hpp"
#include "kformer/core/enum_names.hpp"
#include "kformer/core/operands.hpp"
#include "kformer/core/stored_type.hpp"
#include "kformer/io/safetensors.hpp"
#include "kformer/load/load_weights.hpp"
#include "kformer/memory/transfer.hpp"
#include "load/convert.hpp"
#include "load/divided_weights.hpp"
#include "load/merge_staging.hpp"
#include "load/safetensors_array.hpp"
#include "model/adapters/low_rank.hpp"
#include "model/adapters/magnitudes.hpp"

/// \file
/// Definitions of the functions that know an execution space.

namespace kformer {

namespace Impl {

/// A model of other extents than the checkpoint's would be filled with what is not its own.
/// \throws FileError if the extents differ
void require_shape(const WeightSlot& slot, const CheckpointTensor& tensor);

/// A matrix whose columns are adjacent.
template <class T, class Space>
BlockMatrix<Space, T> matrix_of(const TensorRef& t) {
  return BlockMatrix<Space, T>(
      static_cast<T*>(t.data),
      Kokkos::LayoutStride(static_cast<std::size_t>(t.extent[0]), static_cast<std::size_t>(t.stride[0]),
                           static_cast<std::size_t>(t.extent[1]), 1));
}

/// Fills a quantised slot with blocks of its format, or with numbers that become such blocks.
template <class Exec>
void load_quantized(const Exec& exec, const CheckpointTensor& tensor, const WeightSlot& slot,
                    const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger) {
  using Space = typename Exec::memory_space;
  const QuantizedOutput& to = slot.quantized;
  const auto format = quantized_format_of(tensor.type);
  if (format && *format != to.format)
    throw FileError(
        fmt::format("kformer::load_weights: {} is quantised to {} in the checkpoint, and to {} in the "
                    "model; keep its format, or make it of dense weights",
                    slot.name, to_string(*format), to_string(to.format)));
  if (format) {
    transfer<Space, Kokkos::HostSpace>(exec, ledger, to.data, tensor.bytes.data(), tensor.bytes.size());
    return;
  }
  const auto numbers = dtype_of_numbers(tensor.type);
  if (!numbers || *numbers == DType::i32 || *numbers == DType::u8)
    throw FileError(fmt::format("kformer::load_weights: {} is stored as {}, which cannot be quantised",
                                slot.name, to_string(tensor.type)));
  // In the type of the file, so that the blocks are those of kformer-quantize.
  dispatch_dtype(*numbers, [&]<class T>(std::type_identity<T>) {
    const auto dense = matrix_in<T>(staging, 0, to.rows, to.cols);
    load_dense(exec, tensor, tensor_ref(dense), staging, ledger);
    quantize(exec, dense, to);
  });
  exec.fence("kformer::load_weights");  // the next one takes the same memory
}

/// The rows of an array one by one, which lie further apart than their lengths.
template <class Exec>
void load_rows(const Exec& exec, const CheckpointTensor& tensor, const TensorRef& to, Ledger& ledger) {
  const auto rows = static_cast<std::size_t>(to.extent[0]);
  for (std::size_t r = 0; r < rows; ++r) {
    CheckpointTensor row = tensor;
    const std::size_t bytes = tensor.bytes.size() / rows;
    row.shape = {1, static_cast<std::size_t>(to.extent[1])};
    row.bytes = tensor.bytes.subspan(r * bytes, bytes);
    load_dense(exec, row, rows_of(to, static_cast<std::int64_t>(r), 1), {}, ledger);
  }
}

}  // namespace Impl

template <class Exec>
void load_dense(const Exec& exec, const CheckpointTensor& tensor, const TensorRef& to,
                const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger) {
  using Space = typename Exec::memory_space;
  Impl::require_allocated("load_dense", "the array", to.data, static_cast<std::size_t>(to.size()));
  if (to.rank == 2 && to.stride[0] != to.extent[1] && to.extent[0] > 1) {
    Impl::load_rows(exec, tensor, to, ledger);
    return;
  }
  if (quantized_format_of(tensor.type))
    Impl::require_allocated("load_dense", "the staging block", staging.data(), tensor.bytes.size());
  dispatch_dtype(to.dtype, [&]<class T>(std::type_identity<T>) {
    const auto count = static_cast<std::size_t>(to.size());
    if (const auto format = quantized_format_of(tensor.type)) {
      transfer<Space, Kokkos::HostSpace>(exec, ledger, staging.data(), tensor.bytes.data(),
                                         tensor.bytes.size());
      dequantize(exec, QuantizedMatrix{*format, staging.data(), to.extent[0], to.extent[1]},
                 Impl::matrix_of<T, Space>(to));
      exec.fence("kformer::load_weights");
    } else if constexpr (Impl::host_reaches<Space>) {
      Impl::convert(tensor.type, tensor.bytes.data(), count, static_cast<T*>(to.data));
    } else {
      std::vector<T> host(count);
      Impl::convert(tensor.type, tensor.bytes.data(), count, host.data());
      transfer<Space, Kokkos::HostSpace>(exec, ledger, to.data, host.data(), count * sizeof(T));
      exec.fence("kformer::load_weights");
    }
  });
}

namespace Impl {

/// Fills a dense slot with a tensor that is not quantised, or with its part of it.
/// \param host as in `part_of_tensor`
template <class Exec>
void load_part(const Exec& exec, const CheckpointTensor& tensor, const WeightSlot& slot,
               std::vector<std::byte>& host, Ledger& ledger) {
  load_dense(exec, slot.slice.divides() ? part_of_tensor(tensor, slot, host) : tensor, slot.dense, {}, ledger);
}

}  // namespace Impl

template <class Exec>
void load_weights(const Exec& exec, const Checkpoint& checkpoint, const std::vector<WeightSlot>& slots,
                  const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger,
                  const std::function<bool()>& stop) {
  std::vector<std::byte> columns;
  for (const WeightSlot& slot : slots) {
    if (stop && stop()) break;
    const CheckpointTensor& tensor = checkpoint.at(slot.name);
    Impl::require_shape(slot, tensor);
    Impl::require_allocated("load_weights", slot.name,
                            slot.is_quantized() ? slot.quantized.data : slot.dense.data, tensor.bytes.size());
    const CheckpointTensor own = slot.slice.divides() ? Impl::part_of_tensor(tensor, slot, columns) : tensor;
    if (slot.is_quantized())
      Impl::load_quantized(exec, own, slot, staging, ledger);
    else
      load_dense(exec, own, slot.dense, staging, ledger);
    checkpoint.release(slot.name);
  }
  exec.fence("kformer::load_weights");
}

namespace Impl {

/// Writes weights, one in host memory at a time.
/// \param gather returns the first element of a weight in memory of `Exec`, all of it
template <class Exec, class Gather>
void write_weights(const Exec& exec, std::span<const Parameter> parameters, const std::filesystem::path& path,
                   Ledger& ledger, Gather gather) {
  std::vector<std::byte> host;
  SafetensorsWriter file;
  // Older releases of transformers refuse a file without it.
  file.metadata("format", "pt");
  for (const Parameter& p : parameters) {
    std::vector<std::size_t> shape = shape_of(p.weight);
    if (p.slice.divides())
      shape[static_cast<std::size_t>(p.slice.axis)] = static_cast<std::size_t>(p.slice.whole);
    file.add(p.name, name_in_files(p.weight.dtype), shape, [&, shape] {
      const void* data = gather(p);
      if constexpr (!host_reaches<typename Exec::memory_space>) {
        host.resize(std::accumulate(shape.begin(), shape.end(), size_of(p.weight.dtype), std::multiplies<>()));
        transfer<Kokkos::HostSpace, typename Exec::memory_space>(exec, ledger, host.data(), data, host.size());
        data = host.data();
      }
      exec.fence("kformer::save_weights");
      return data;
    });
  }
  file.write(path);
}

inline void require_allocated(std::span<const Parameter> parameters) {
  for (const Parameter& p : parameters)
    require_allocated("save_weights", p.name, p.weight.data, static_cast<std::size_t>(p.weight.size()));
}

}  // namespace Impl

template <class Exec>
void save_weights(const Exec& exec, std::span<const Parameter> parameters, const std::filesystem::path& path,
                  Ledger& ledger) {
  Impl::require_allocated(parameters);
  for (const Parameter& p : parameters)
    if (p.slice.divides())
      throw NotSupported(fmt::format(
          "kformer::save_weights: this rank has a part of {} alone; name the ranks that divide it", p.name));
  Impl::write_weights(exec, parameters, path, ledger, [](const Parameter& p) { return p.weight.data; });
}

template <class Exec>
std::size_t gather_bytes(std::span<const Parameter> parameters, const WeightRanks<Exec>& ranks) {
  const auto is_first = [](Collectives<Exec>* line) { return !line || line->communicator().rank() == 0; };
  if (!is_first(ranks.tensor)) return 0;
  std::size_t most = 0;
  const auto count = [&](const Parameter& p, bool whole) {
    const Impl::DividedArray array(p);
    const std::size_t columns_of_another =
        p.slice.divides() && !array.by_rows ? static_cast<std::size_t>(p.weight.size()) : 0;
    if (whole) most = std::max(most, (array.elements() + columns_of_another) * size_of(p.weight.dtype));
  };
  for (const Parameter& p : parameters) count(p, p.slice.divides());
  // What other stages send.
  if (ranks.stages && is_first(ranks.stages))
    for (const Parameter& p : ranks.all) count(p, true);
  return most;
}

namespace Impl {

/// The first stage that has each of some parameters, in which ranks divide the layers.
template <class Exec>
std::vector<int> owners(const Exec& exec, const std::vector<Parameter>& all,
                        const std::map<std::string, const Parameter*>& own, Collectives<Exec>& stages) {
  std::vector<double> own_has;
  for (const Parameter& p : all) own_has.push_back(own.contains(p.name));
  const std::vector<double> has = stages.gather_values(exec, own_has, "model");
  std::vector<int> stage_of(all.size());
  for (std::size_t i = 0; i < all.size(); ++i)
    while (has[static_cast<std::size_t>(stage_of[i]) * all.size() + i] == 0) ++stage_of[i];
  return stage_of;
}

}  // namespace Impl

template <class Exec>
void save_weights(const Exec& exec, std::span<const Parameter> parameters, const std::filesystem::path& path,
                  Ledger& ledger, const WeightRanks<Exec>& ranks,
                  const MemoryBlock<typename Exec::memory_space>& staging) {
  Impl::require_allocated(parameters);
  Impl::require_allocated("save_weights", "the staging block", staging.data(), gather_bytes(parameters, ranks));
  // All ranks take the weights in the order of the file.
  std::vector<Parameter> all(parameters.begin(), parameters.end());
  if (ranks.stages) all = ranks.all;
  std::ranges::sort(all, {}, &Parameter::name);
  std::map<std::string, const Parameter*> own;
  for (const Parameter& p : parameters) own[p.name] = &p;
  const int stage = ranks.stages ? ranks.stages->communicator().rank() : 0;
  const bool leads = !ranks.tensor || ranks.tensor->communicator().rank() == 0;
  std::vector<int> stage_of(all.size());
  if (ranks.stages) stage_of = Impl::owners(exec, all, own, *ranks.stages);
  // Of a weight of this stage: all of it on the first rank.
  const auto gathered = [&]<class T>(std::type_identity<T>, const Parameter& p) -> const void* {
    if (!p.slice.divides()) return p.weight.data;
    if (leads) return Impl::gather_parts<T>(exec, p, *ranks.tensor, staging);
    Impl::send_part<T>(exec, p, *ranks.tensor);
    return nullptr;
  };
  const auto next = [&](std::size_t i) -> const void* {
    const Parameter& p = all[i];
    return dispatch_dtype(p.weight.dtype, [&]<class T>(std::type_identity<T> type) -> const void* {
      using Whole = BlockVector<typename Exec::memory_space, T>;
      const std::size_t elements = Impl::DividedArray(p).elements();
      const void* const data = stage_of[i] == stage ? gathered(type, *own.at(p.name)) : nullptr;
      if (stage_of[i] == 0 || !leads) return data;
      if (stage_of[i] == stage)
        ranks.stages->send(exec, Whole(static_cast<T*>(const_cast<void*>(data)), elements), 0, "model");
      if (stage > 0) return nullptr;
      ranks.stages->receive(exec, Whole(staging.template at<T>(0), elements), stage_of[i], "model");
      return staging.data();
    });
  };
  std::size_t i = 0;
  if (leads && stage == 0)
    Impl::write_weights(exec, all, path, ledger, [&](const Parameter&) { return next(i++); });
  else
    while (i < all.size()) next(i++);
}

template <class Exec>
void load_adapter(const Exec& exec, const AdapterCheckpoint& adapter, std::span<const Parameter> adapters,
                  Ledger& ledger) {
  std::vector<std::byte> columns;
  for (const Parameter& p : adapters) {
    const CheckpointTensor tensor = adapter.at(p.name);
    const WeightSlot slot{p.name, p.weight, {}, p.slice};
    Impl::require_shape(slot, tensor);
    Impl::load_part(exec, tensor, slot, columns, ledger);
  }
}

template <class Exec>
void merge_adapter(const Exec& exec, const AdapterCheckpoint& adapter, const std::vector<WeightSlot>& slots,
                   const MemoryBlock<typename Exec::memory_space>& staging, Ledger& ledger,
                   Collectives<Exec>* ranks) {
  std::vector<std::byte> columns;
  for (const WeightSlot& slot : slots)
    for (std::size_t i = 0; i < adapter.lora().targets.size(); ++i) {
      const auto p = static_cast<Projection>(i);
      if (adapter.lora()[p].rank == 0 || !slot.name.ends_with(std::string(name_of(p)) + ".weight")) continue;
      if (slot.is_quantized())
        throw NotSupported("kformer::merge_adapter: '" + slot.name +
                           "' stays quantised, so that its adapter cannot be added; expand the weights");
      const std::string map = slot.name.substr(0, slot.name.rfind('.'));
      const std::int64_t out = slot.dense.extent[0], in = slot.dense.extent[1], rank = adapter.lora()[p].rank;
      // What has the rows (0) or the columns (1) of the weight.
      const auto load = [&](const char* matrix, const TensorRef& to, int axis) {
        const std::string name = map + matrix;
        const ArraySlice slice = slot.slice.axis == axis ? slot.slice : ArraySlice{};
        Impl::load_part(exec, adapter.at(name), {name, to, {}, slice}, columns, ledger);
      };
      dispatch_dtype(slot.dense.dtype, [&]<class T>(std::type_identity<T>) {
        using Space = typename Exec::memory_space;
        const auto a = Impl::matrix_in<T>(staging, 0, rank, in),
                   b = Impl::matrix_in<T>(staging, a.size() * sizeof(T), out, rank);
        load(".lora_A.weight", tensor_ref(a), 1);
        load(".lora_B.weight", tensor_ref(b), 0);
        const char* label = "kformer::merge_adapter";
        const auto w = Impl::matrix_of<T, Space>(slot.dense);
        const double scale = adapter.lora().scale(p);
        if (adapter.lora().magnitudes) {
          const Impl::MergeStaging places(rank, in, out, slot.dense.dtype);
          const auto m = Impl::vector_in<T>(staging, places.magnitude, out);
          const auto norm = Impl::vector_in<compute_t<T>>(staging, places.norm, out),
                     gain = Impl::vector_in<compute_t<T>>(staging, places.gain, out);
          load(".lora_magnitude_vector", tensor_ref(m), 0);
          Impl::row_norms(label, exec, w, b, a, scale, norm);
          if (ranks && slot.slice.axis == 1) Impl::join_norms(exec, *ranks, norm);
          Impl::row_gains(label, exec, m, norm, gain);
          Impl::add_low_rank(label, exec, w, b, a, scale, gain);
        } else {
          Impl::add_low_rank(label, exec, w, b, a, scale);
        }
        exec.fence("kformer::merge_adapter");  // the next one takes the same memory
      });
    }
}

template <class Exec>
void save_gguf_adapter(const Exec& exec, std::span<const Parameter> adapters, const LoraConfig& lora,
                       const LlamaConfig& model, const std::filesystem::path& path, Ledger& ledger) {
  std::map<std::string, std::vector<double>> values;
  for (const Parameter& p : adapters) {
    const auto count = static_cast<std::size_t>(p.weight.size());
    if (p.slice.divides())
      throw NotSupported(
          fmt::format("kformer::save_gguf_adapter: this rank has a part of {} alone; write the adapter with "
                      "save_adapter, and convert it",
                      p.name));
    Impl::require_allocated("save_gguf_adapter", p.name, p.weight.data, count);
    dispatch_dtype(p.weight.dtype, [&]<class T>(std::type_identity<T>) {
      std::vector<T> host(count);
      transfer<Kokkos::HostSpace, typename Exec::memory_space>(exec, ledger, host.data(), p.weight.data,
                                                               count * sizeof(T));
      exec.fence("kformer::save_gguf_adapter");
      auto& numbers = values[p.name];
      for (const T number : host) numbers.push_back(static_cast<double>(static_cast<compute_t<T>>(number)));
    });
  }
  write_gguf_adapter(path, model, lora, [&](const std::string& name) { return values.at(name); });
}

template <class Exec>
void save_adapter(const Exec& exec, std::span<const Parameter> adapters, const LoraConfig& lora,
                  const AdapterDescription& description, const std::filesystem::path& folder, Ledger& ledger,
                  const WeightRanks<Exec>& ranks, const MemoryBlock<typename Exec::memory_space>& staging) {
  std::vector<Parameter> named(adapters.begin(), adapters.end());
  for (Parameter& p : named) p.name = adapter_prefix + p.name;
  WeightRanks<Exec> of = ranks;
  for (Parameter& p : of.all) p.name = adapter_prefix + p.name;
  save_weights(exec, std::span<const Parameter>(named), folder / adapter_weights_name, ledger, of, staging);
  const Collectives<Exec>* const lines[] = {ranks.tensor, ranks.stages};
  for (const Collectives<Exec>* line : lines)
    if (line && line->communicator().rank() > 0) return;
  const std::string config = adapter_config_json(lora, description);
  const auto bytes = std::as_bytes(std::span(config));
  Impl::replace_file(folder / adapter_config_name, std::span(&bytes, 1));
}

}  // namespace kformer
