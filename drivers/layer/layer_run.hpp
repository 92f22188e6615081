// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/sampling.hpp"
#include "kformer/model/decoder_layer.hpp"

/// \file
/// One decoder layer with its inputs, behind an interface that knows neither execution space nor precision.

namespace kformer::drivers {

/// A host copy of a tensor.
struct HostArray {
  std::vector<std::size_t> shape;  ///< slowest extent first
  std::vector<double> values;      ///< row-major
};

/// Tensors by name: inputs from a file, or results.
using HostArrays = std::map<std::string, HostArray>;

/// Everything that says which layer to make.
struct LayerTask {
  LlamaConfig config;                   ///< of the layer
  LayerShape shape;                     ///< tokens
  AttentionAlgorithm algorithm;         ///< how attention is computed
  LayerMode mode;                       ///< training keeps what backward needs
  std::uint64_t seed = 1;               ///< of random inputs
  const HostArrays* tensors = nullptr;  ///< inputs from elsewhere; null: random
};

/// A layer, its inputs x and dy, and its outputs y and dx.
class LayerRun {
 public:
  virtual ~LayerRun() = default;
  /// Writes inputs and weights, and sets gradients to zero.
  virtual void prepare() = 0;
  /// Launches forward.
  virtual void forward() = 0;
  /// Launches backward of the last forward.
  virtual void backward() = 0;
  /// Waits.
  virtual void fence() = 0;
  /// Times forward or backward, warmed up by the caller in `warm_seconds`.
  virtual Samples sample(bool backward, const SamplingPlan& plan, double warm_seconds,
                         const std::function<bool()>& stop) = 0;
  /// `output`, and if `gradients`: `grad.hidden_states` and `grad.<weight>`.
  virtual HostArrays results(bool gradients) = 0;
};

/// The execution spaces of this build: lower-case names as decks use them, the default one first.
std::vector<std::string> built_spaces();

/// A layer run on the space of that name in that precision; all memory is booked in `ledger`.
/// \throws OutOfMemory with the ledger
std::unique_ptr<LayerRun> make_layer_run(const std::string& space, DType dtype, const LayerTask& task,
                                         const std::shared_ptr<Ledger>& ledger);

/// What a space of this machine can do, measured here: the limits that results are held against.
struct MachineLimits {
  double matmul_rate_f32;  ///< FLOP/s of a matrix product in float, by the library's best kernel
  double matmul_rate_f64;  ///< FLOP/s in double
  double copy_bandwidth;   ///< byte/s read and written by a copy beyond the caches
};

/// Measures the limits of a space.
MachineLimits measure_machine(const std::string& space);

}  // namespace kformer::drivers
