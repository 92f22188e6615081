// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "kformer/model/layer_weights.hpp"
#include "kformer/model/lora_config.hpp"
#include "kformer/ops/lora.hpp"

/// \file
/// The arrays of a decoder layer's adapters, or of their gradients.

namespace kformer {

/// The adapters of one array of weights: of `count` projections, one below the other. A projection that has none has
/// rank 0.
template <class MemorySpace, class U, std::size_t count>
struct AdapterMatrices {
  BlockMatrix<MemorySpace, U> a;                                   ///< (Σ ranks, in)
  std::array<LoraPart<BlockMatrix<MemorySpace, U>>, count> parts;  ///< B, (out, rank) each
  BlockVector<MemorySpace, U>
      magnitude;  ///< (Σ out), of DoRA; only the rows of projections with an adapter count
};

/// The adapters of a decoder layer in one block of memory. `U` is the storage type, or the type of gradients.
template <class MemorySpace, class U>
struct LayerAdapters {
  AdapterMatrices<MemorySpace, U, 3> qkv;      ///< of queries, keys and values
  AdapterMatrices<MemorySpace, U, 1> out;      ///< behind attention
  AdapterMatrices<MemorySpace, U, 2> gate_up;  ///< of gate and up
  AdapterMatrices<MemorySpace, U, 1> down;     ///< behind the MLP
  std::size_t bytes = 0;                       ///< from the first B of `qkv` on, where they all are
  MemoryBlock<MemorySpace> block;              ///< of their own; empty where they lie in another

  LayerAdapters() = default;

  /// Books and allocates, unless `over` has room; the contents are undefined.
  /// \param config       the layer's extents
  /// \param lora         ranks
  /// \param ledger       where the memory is booked
  /// \param memory_class of the block
  /// \param over         a block that holds nothing else while these arrays are in use
  /// \param room         its bytes that may be used
  /// \throws OutOfMemory with the ledger
  LayerAdapters(const LlamaConfig& config, const LoraConfig& lora, Ledger& ledger, MemoryClass memory_class,
                const MemoryBlock<MemorySpace>* over = nullptr, std::size_t room = 0) {
    Arena<MemorySpace> arena;
    const auto add = [&](auto& matrices, Projection first) {
      std::int64_t rank = 0, column = 0, in = 0;
      for (std::size_t i = 0; i < matrices.parts.size(); ++i) {
        const auto p = static_cast<Projection>(static_cast<std::size_t>(first) + i);
        const auto [rows, columns] = projection_extents(config, p);
        matrices.parts[i].column = column;
        matrices.parts[i].scale = lora.scale(p);
        arena.add(matrices.parts[i].b, rows, lora[p].rank);
        rank += lora[p].rank;
        column += rows;
        in = columns;
      }
      arena.add(matrices.a, rank, in);
      arena.add(matrices.magnitude, lora.magnitudes && rank > 0 ? column : 0);
    };
    add(qkv, Projection::q);
    add(out, Projection::o);
    add(gate_up, Projection::gate);
    add(down, Projection::down);
    bytes = arena.bytes();
    if (over && bytes <= room)
      arena.bind(*over);
    else
      block = arena.allocate(ledger, memory_class,
                             std::string("DecoderLayer::adapters ") + to_string(memory_class));
  }
};

/// The adapters of a layer with their gradients, absent where `gradients` is null:
/// "self_attn.q_proj.lora_A.weight", (rank, in), and "self_attn.q_proj.lora_B.weight", (out, rank), and so on for
/// each projection that has one, with magnitudes also "self_attn.q_proj.lora_magnitude_vector", (out).
/// \param weights    the adapters
/// \param gradients  theirs, or null
/// \param rate_ratio of the learning rate of B over that of A
template <class MemorySpace, class T, class C>
std::vector<Parameter> adapter_parameters(const LayerAdapters<MemorySpace, T>& weights,
                                          const LayerAdapters<MemorySpace, C>* gradients, double rate_ratio) {
  std::vector<Parameter> all;
  const auto add = [&](auto member, Projection first) {
    const auto& w = member(weights);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < w.parts.size(); ++i) {
      const auto rank = static_cast<std::int64_t>(w.parts[i].b.extent(1));
      if (rank == 0) continue;
      const auto gradient = [&](auto array) { return gradients ? array(member(*gradients)) : TensorRef{}; };
      const auto a = [=](const auto& m) { return Impl::rows_of(tensor_ref(m.a), row, rank); };
      const auto b = [=](const auto& m) { return tensor_ref(m.parts[i].b); };
      const std::string name =
          Impl::module_of(static_cast<Projection>(static_cast<std::size_t>(first) + i)) + ".lora_";
      all.push_back({name + "A.weight", a(w), gradient(a)});
      all.push_back({name + "B.weight", b(w), gradient(b), rate_ratio});
      // In the group of B, as PEFT has it.
      const auto magnitude = [=](const auto& m) {
        return Impl::rows_of(tensor_ref(m.magnitude), m.parts[i].column,
                             static_cast<std::int64_t>(m.parts[i].b.extent(0)));
      };
      if (w.magnitude.extent(0) > 0)
        all.push_back({name + "magnitude_vector", magnitude(w), gradient(magnitude), rate_ratio, true});
      row += rank;
    }
  };
  add([](const auto& x) -> const auto& { return x.qkv; }, Projection::q);
  add([](const auto& x) -> const auto& { return x.out; }, Projection::o);
  add([](const auto& x) -> const auto& { return x.gate_up; }, Projection::gate);
  add([](const auto& x) -> const auto& { return x.down; }, Projection::down);
  return all;
}

}  // namespace kformer
