// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <vector>

#include "kformer/core/tensor_ref.hpp"

/// \file
/// Checks of operands. All error texts have one form:
/// `kformer::rms_norm_forward: extents do not match: x[3,5] weight[5] y[3,4] rstd[3]; expected y to have the
/// extents of x`.

namespace kformer {

/// An operand and the role it plays in a public function. Absent operands (`ref.rank == -1`) are skipped.
struct Operand {
  const char* role;  ///< the parameter's name
  TensorRef ref;     ///< what was passed
};

/// The operands of one call, and the checks every public function makes before any work.
class Operands {
 public:
  /// `function` is the public function's name without namespace; the first operand sets the storage type.
  Operands(const char* function, std::initializer_list<Operand> operands);

  /// Requires unit stride along the last extent of every operand (the stride of an extent below 2 does not
  /// matter).
  /// \throws DimensionMismatch
  const Operands& require_unit_stride() const;

  /// Requires that every operand is dense and row-major; `why` says what needs
  /// that, in words that follow "because".
  /// \throws DimensionMismatch
  const Operands& require_dense(const std::string& why) const;

  /// Requires `condition` on the extents; `expected` says in words what was expected.
  /// \throws DimensionMismatch
  const Operands& require_extents(bool condition, const std::string& expected) const;

  /// Requires that the operand `role`, where present, has storage type `dtype`.
  /// \throws DimensionMismatch
  const Operands& require_dtype(const char* role, DType dtype) const;

  /// Requires `condition` on an option; `sentence` says what is wrong and what to do.
  /// \throws NotSupported
  const Operands& require_option(bool condition, const std::string& sentence) const;

  /// Requires a workspace of at least `needed` bytes.
  /// \throws DimensionMismatch
  const Operands& require_workspace(std::size_t given, std::size_t needed) const;

  /// `x[3,5] weight[5]`: each operand by role with its extents.
  std::string describe() const;

 private:
  std::string m_function;
  std::vector<Operand> m_operands;
};

}  // namespace kformer
