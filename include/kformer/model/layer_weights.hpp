// SPDX-License-Identifier: MIT
#pragma once

#include <set>
#include <string>
#include <vector>

#include "kformer/core/tensor_parts.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/model/projection_weight.hpp"

/// \file
/// The arrays of a decoder layer's parameters, or of their gradients.

namespace kformer {

/// A (rows, columns) array somewhere in a block of memory.
template <class MemorySpace, class U>
using BlockMatrix =
    Kokkos::View<U**, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// A one-dimensional array somewhere in a block of memory.
template <class MemorySpace, class U>
using BlockVector = Kokkos::View<U*, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// A one-dimensional array with any stride, passed to a model.
template <class MemorySpace, class U>
using StridedVector =
    Kokkos::View<U*, Kokkos::LayoutStride, MemorySpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

namespace Impl {

template <class U, class MemorySpace>
BlockMatrix<MemorySpace, U> matrix_in(const MemoryBlock<MemorySpace>& block, std::size_t offset,
                                      std::int64_t rows, std::int64_t columns) {
  const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
  return BlockMatrix<MemorySpace, U>(block.template at<U>(offset), Kokkos::LayoutStride(m, n, n, 1));
}

template <class U, class MemorySpace>
BlockVector<MemorySpace, U> vector_in(const MemoryBlock<MemorySpace>& block, std::size_t offset,
                                      std::int64_t size) {
  return BlockVector<MemorySpace, U>(block.template at<U>(offset), static_cast<std::size_t>(size));
}

/// One published parameter as rows of the array it is stored in.
struct ParameterRows {
  std::string name;    ///< such as "self_attn.q_proj.weight"
  std::int64_t first;  ///< its first row
  std::int64_t count;  ///< its rows
};

/// The parameters in the fused projection of queries, keys and values, or in its bias, by `suffix` ("weight",
/// "bias").
std::vector<ParameterRows> qkv_parameters(const LlamaConfig& config, const char* suffix);
/// The parameters in the fused projection of gate and up.
std::vector<ParameterRows> gate_up_parameters(const LlamaConfig& config);
/// The published names of a model's matrices.
std::set<std::string, std::less<>> matrix_names(const LlamaConfig& config);

}  // namespace Impl

/// The parameters of a decoder layer in one block of memory; q, k and v are rows of one array, and so are gate
/// and up. `U` is the storage type, or the type of gradients.
template <class MemorySpace, class U>
struct LayerWeights {
  /// An array of one dimension.
  using Vector = BlockVector<MemorySpace, U>;
  /// An array of two.
  using Matrix = BlockMatrix<MemorySpace, U>;
  /// The matrices of a linear map one by one.
  using Split = std::vector<ProjectionWeight<MemorySpace, U>>;

  Vector norm1;                    ///< before attention
  Vector norm2;                    ///< before the MLP
  Vector q_norm;                   ///< of query heads; empty without `qk_norm`
  Vector k_norm;                   ///< of key heads; empty without `qk_norm`
  Vector bias;                     ///< of `qkv`; empty without `attention_bias`
  Matrix qkv;                      ///< queries, keys and values
  Matrix out;                      ///< behind attention
  Matrix gate_up;                  ///< gate and up of the MLP
  Matrix down;                     ///< behind the MLP
  Split qkv_split;                 ///< in place of `qkv`, where a matrix stays quantised
  Split out_split;                 ///< in place of `out`
  Split gate_up_split;             ///< in place of `gate_up`
  Split down_split;                ///< in place of `down`
  std::size_t bytes = 0;           ///< from the first number of `norm1` on, where they all are
  MemoryBlock<MemorySpace> block;  ///< of their own; empty where they lie in another

  LayerWeights() = default;
  /// Books and allocates, unless `over` has room; the contents are undefined.
  /// \param config       the layer's extents
  /// \param ledger       where the memory is booked
  /// \param memory_class of the block
  /// \param over         a block that holds nothing else while these arrays are in use
  /// \param room         its bytes that may be used
  /// \param formats      matrices that stay quantised
  /// \throws OutOfMemory with the ledger
  LayerWeights(const LlamaConfig& config, Ledger& ledger, MemoryClass memory_class,
               const MemoryBlock<MemorySpace>* over = nullptr, std::size_t room = 0,
               const WeightFormats& formats = {}) {
    const std::int64_t hidden = config.hidden_size, inner = config.intermediate_size;
    const std::int64_t bias_size = config.attention_bias ? config.qkv_size() : 0;
    const std::int64_t head = config.qk_norm ? config.head_dim : 0;
    Arena<MemorySpace> arena;
    arena.add(norm1, hidden);
    arena.add(norm2, hidden);
    arena.add(q_norm, head);
    arena.add(k_norm, head);
    arena.add(bias, bias_size);
    const auto add = [&](Matrix& whole, Split& split, const std::vector<Impl::ParameterRows>& parts,
                         std::int64_t columns) {
      split = Impl::projection_weights<MemorySpace, U>(parts, columns, formats);
      arena.add(whole, split.empty() ? parts.back().first + parts.back().count : 0, columns);
      Impl::add_to(arena, split);
    };
    add(qkv, qkv_split, Impl::qkv_parameters(config, "weight"), hidden);
    add(out, out_split, {{"self_attn.o_proj.weight", 0, hidden}}, config.attention_size());
    add(gate_up, gate_up_split, Impl::gate_up_parameters(config), hidden);
    add(down, down_split, {{"mlp.down_proj.weight", 0, hidden}}, inner);
    bytes = arena.bytes();
    if (over && bytes <= room)
      arena.bind(*over);
    else
      block = arena.allocate(ledger, memory_class, std::string("DecoderLayer::") + to_string(memory_class));
  }
};

/// The published parameters of a layer with their gradients, those absent where `gradients` is null. Matrices that stay
/// quantised are none.
template <class MemorySpace, class T, class C>
std::vector<Parameter> layer_parameters(const LlamaConfig& config, const LayerWeights<MemorySpace, T>& weights,
                                        const LayerWeights<MemorySpace, C>* gradients) {
  std::vector<Parameter> all;
  const auto split = [&](const auto& matrices) {
    for (const auto& w : matrices)
      if (!w.format) all.push_back({w.name, tensor_ref(w.dense), {}});
    return !matrices.empty();
  };
  const auto add = [&](const std::vector<Impl::ParameterRows>& parts, auto member) {
    for (const auto& [name, first, count] : parts)
      all.push_back({name, Impl::rows_of(tensor_ref(member(weights)), first, count),
                     gradients ? Impl::rows_of(tensor_ref(member(*gradients)), first, count) : TensorRef{}});
  };
  const std::int64_t hidden = config.hidden_size;
  add({{"input_layernorm.weight", 0, hidden}}, [](const auto& w) { return w.norm1; });
  if (!split(weights.qkv_split))
    add(Impl::qkv_parameters(config, "weight"), [](const auto& w) { return w.qkv; });
  if (config.attention_bias) add(Impl::qkv_parameters(config, "bias"), [](const auto& w) { return w.bias; });
  if (config.qk_norm) {
    add({{"self_attn.q_norm.weight", 0, config.head_dim}}, [](const auto& w) { return w.q_norm; });
    add({{"self_attn.k_norm.weight", 0, config.head_dim}}, [](const auto& w) { return w.k_norm; });
  }
  if (!split(weights.out_split))
    add({{"self_attn.o_proj.weight", 0, hidden}}, [](const auto& w) { return w.out; });
  add({{"post_attention_layernorm.weight", 0, hidden}}, [](const auto& w) { return w.norm2; });
  if (!split(weights.gate_up_split))
    add(Impl::gate_up_parameters(config), [](const auto& w) { return w.gate_up; });
  if (!split(weights.down_split))
    add({{"mlp.down_proj.weight", 0, hidden}}, [](const auto& w) { return w.down; });
  return all;
}

}  // namespace kformer
