// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kformer/io/checkpoint.hpp"
#include "kformer/model/weight_matrix.hpp"

/// \file
/// The weights of a checkpoint into the arrays of a model.

namespace kformer::drivers {

/// The formats of the matrices that a checkpoint has quantised.
WeightFormats quantized_weights(const Checkpoint& checkpoint);

/// Bytes of the largest weight that is quantised in the checkpoint and dense in the model.
std::size_t staging_bytes(const Checkpoint& checkpoint, const WeightFormats& kept);

namespace Impl {

/// `count` elements of a stored type, somewhere in a mapped file, as T.
template <class T>
void convert(const std::string& type, const std::byte* from, std::size_t count, T* to) {
  const auto each = [&]<class S>(std::type_identity<S>) {
    if constexpr (std::is_same_v<S, T>) {
      std::memcpy(to, from, count * sizeof(T));
    } else {
      Kokkos::parallel_for("kformer-load::convert",
                           Kokkos::RangePolicy<Kokkos::DefaultHostExecutionSpace>(0, count),
                           [=](std::size_t i) {
                             S value;
                             std::memcpy(&value, from + i * sizeof(S), sizeof(S));
                             to[i] = T(static_cast<compute_t<T>>(static_cast<compute_t<S>>(value)));
                           });
      Kokkos::DefaultHostExecutionSpace().fence("kformer-load");
    }
  };
  if (type == "F32") return each(std::type_identity<float>());
  if (type == "F64") return each(std::type_identity<double>());
  if (type == "F16") return each(std::type_identity<f16>());
  if (type == "BF16") return each(std::type_identity<bf16>());
  throw FileError("a weight of type " + type + " cannot be converted");
}

template <class Space>
using DeviceBytes = Kokkos::View<std::byte*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

template <class Space>
void copy_bytes(void* to, const void* from, std::size_t bytes) {
  using Source = Kokkos::View<const std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  Kokkos::deep_copy(DeviceBytes<Space>(static_cast<std::byte*>(to), bytes),
                    Source(static_cast<const std::byte*>(from), bytes));
}

}  // namespace Impl

/// A tensor of a checkpoint into a dense array of T; what is quantised is expanded on the device.
/// \param to      its extents, in memory of the execution space
/// \param staging as many bytes as a quantised tensor has
template <class Exec, class T>
void load_dense(const Exec& exec, const CheckpointTensor& tensor, const TensorRef& to,
                const MemoryBlock<typename Exec::memory_space>& staging) {
  using Space = typename Exec::memory_space;
  const auto count = static_cast<std::size_t>(to.size());
  if (const auto format = quantized_format_named(tensor.type)) {
    Impl::copy_bytes<Space>(staging.data(), tensor.bytes.data(), tensor.bytes.size());
    dequantize(exec, QuantizedMatrix{*format, staging.data(), to.extent[0], to.extent[1]},
               BlockMatrix<Space, T>(static_cast<T*>(to.data),
                                     Kokkos::LayoutStride(static_cast<std::size_t>(to.extent[0]),
                                                          static_cast<std::size_t>(to.stride[0]),
                                                          static_cast<std::size_t>(to.extent[1]), 1)));
    exec.fence("kformer-load");
  } else if constexpr (Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible) {
    Impl::convert(tensor.type, tensor.bytes.data(), count, static_cast<T*>(to.data));
  } else {
    std::vector<T> host(count);
    Impl::convert(tensor.type, tensor.bytes.data(), count, host.data());
    Impl::copy_bytes<Space>(to.data, host.data(), count * sizeof(T));
  }
}

/// Writes the weights of a checkpoint to where a model wants them. The checkpoint has been checked against the
/// model.
/// \param staging as many bytes as `staging_bytes` says
/// \param stop    asked between tensors; the rest is left unwritten
template <class Exec, class T>
void load_weights(const Exec& exec, const Checkpoint& checkpoint, const std::vector<WeightSlot>& slots,
                  const MemoryBlock<typename Exec::memory_space>& staging,
                  const std::function<bool()>& stop = {}) {
  for (const WeightSlot& slot : slots) {
    if (stop && stop()) return;
    const CheckpointTensor& tensor = checkpoint.at(slot.name);
    if (slot.is_quantized())
      Impl::copy_bytes<typename Exec::memory_space>(slot.quantized.data, tensor.bytes.data(),
                                                    tensor.bytes.size());
    else
      load_dense<Exec, T>(exec, tensor, slot.dense, staging);
  }
}

}  // namespace kformer::drivers
