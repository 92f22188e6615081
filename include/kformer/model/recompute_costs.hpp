// SPDX-License-Identifier: MIT
#pragma once

#include <limits>

#include "kformer/memory/planner.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/model/flops.hpp"

/// \file
/// What the layers of a model cost under each recomputation policy: bytes as their constructor books them,
/// seconds from the rates of a machine.

namespace kformer {

/// What a machine does in a second.
struct MachineRates {
  double flops = 0;  ///< floating-point operations of a matrix product in the storage type
  double bytes = 0;  ///< bytes read and written by a pass over memory
  /// Bytes copied between the memory of the execution space and host memory, in one direction.
  double transfers = std::numeric_limits<double>::infinity();
};

/// Bytes that `pointwise` reads and writes again: two norms and the SwiGLU product.
double pointwise_bytes(const LlamaConfig& config, LayerShape shape, std::size_t element_bytes);

/// The time of moving a layer's input to host memory and back that no other work hides. The copy there runs beside the
/// layer's forward; the copy back runs beside the forward and backward of the layer behind.
double offload_seconds(std::size_t input_bytes, double forward_seconds, double backward_seconds,
                       const MachineRates& rates);

/// The costs of a layer, for `recompute_front`. Bytes are those that `LlamaModel` books, rounded up to 64 bytes per
/// array; nothing is allocated. Without `LayerOptions::accumulate` gradients count too: a layer that keeps arrays
/// needs less by those that lie over them. Of ranks that divide the layers these are the costs of one, without messages.
/// \param config  the model's extents
/// \param shape   the tokens it will work on
/// \param options of its layers; `recompute` is not read
/// \param rates   of the machine
/// \throws DimensionMismatch if the configuration is invalid
/// \throws NotSupported if options cannot be combined
template <class Exec, Scalar T>
RecomputeCosts recompute_costs(const LlamaConfig& config, LayerShape shape, LayerOptions options,
                               const MachineRates& rates) {
  options.formats = {};  // of weights, which every policy has
  const auto booked = [&](Recompute kind, MemoryClass memory_class) {
    options.recompute = kind;
    const auto ledger = Ledger::create(Ledger::Mode::count);
    const DecoderLayer<Exec, T> layer(config, shape, options, *ledger);
    return ledger->peak(memory_class);
  };
  // Gradients of a layer lie over the arrays of the one behind it: each layer that keeps arrays saves the gradients of
  // another. Where all layers do, the first one's arrays save none, so the others must be cheaper by as much.
  const std::size_t gradients = booked(Recompute::pointwise, MemoryClass::gradients);
  const bool fit = !options.accumulate && gradients <= booked(Recompute::pointwise, MemoryClass::activations);
  const auto activations = [&](Recompute kind) {
    return booked(kind, MemoryClass::activations) - (fit ? gradients : 0);
  };
  MemoryLayout input;
  input.reserve<T>(checked_product({shape.rows(), config.hidden_size}));
  const int tensor = options.tensor ? options.tensor->size() : 1;
  const int context = options.context ? options.context->size() : 1;
  LlamaConfig own = config;  // of the pointwise operations
  own.intermediate_size /= tensor;
  const LayerShape whole{shape.batch, shape.seq_len * context};
  const double flops = rates.flops * tensor * context;
  const double forward_seconds = layer_flops(config, whole, false, options.causal) / flops;
  const double backward_seconds = layer_flops(config, whole, true, options.causal) / flops;
  return {.input_bytes = input.next(),
          .none_bytes = activations(Recompute::none),
          .pointwise_bytes = activations(Recompute::pointwise),
          .working_bytes = activations(Recompute::layer),
          .pointwise_seconds = pointwise_bytes(own, shape, sizeof(T)) / rates.bytes,
          .forward_seconds = forward_seconds,
          .offload = !Impl::host_reaches<typename Exec::memory_space>,
          .offload_seconds = offload_seconds(input.next(), forward_seconds, backward_seconds, rates),
          .offload_bytes = 2 * input.next()};
}

}  // namespace kformer
