// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kformer/core/stored_type.hpp"
#include "kformer/io/checkpoint.hpp"
#include "quantize/tensor_errors.hpp"

namespace kformer::drivers {

/// The result for one tensor.
struct QuantizedTensor {
  std::vector<std::byte> bytes;  ///< numbers or blocks; empty if it stays as it is stored
  TensorErrors errors;
};

/// Converts tensors one by one, on an execution space.
class TensorQuantizer {
 public:
  virtual ~TensorQuantizer() = default;

  /// Converts a matrix, or passes on a tensor unchanged. Errors are relative to the exact values
  /// that were stored, in double.
  ///
  /// q8_0, q4_0, q4_1: by `quantize`, in bands of rows. Ternary formats: by `ternary_quantize`, one scale for
  /// the matrix; but where every block is −d, 0 or d already, by `quantize`, which keeps it. nf4: by `quantize`.
  /// Numbers: rounded once, to the nearest.
  /// \throws FileError naming the tensor and a row with weights that are not finite, or too large for the
  /// format
  /// \throws OutOfMemory if a band does not fit; for ternary formats and nf4 a band is the matrix
  virtual QuantizedTensor run(const std::string& name, const CheckpointTensor& tensor,
                              const std::optional<StoredType>& format) = 0;
};

/// On the space of that name. Kokkos is initialised.
std::unique_ptr<TensorQuantizer> make_tensor_quantizer(const std::string& space);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<TensorQuantizer> make_tensor_quantizer_on();

}  // namespace kformer::drivers
