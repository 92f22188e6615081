// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kformer/core/tensor_ref.hpp"
#include "kformer/core/workspace.hpp"

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
  /// `function` is the public function's name without namespace. Error texts list the operands in this order.
  Operands(const char* function, std::initializer_list<Operand> operands);

  /// Requires unit stride along the last extent of every operand (the stride of an extent below 2 does not
  /// matter).
  /// \throws DimensionMismatch
  const Operands& require_unit_stride() const;

  /// Requires that every operand is dense and row-major.
  /// \param why what needs that, in words that follow "because"
  /// \throws DimensionMismatch
  const Operands& require_dense(std::string_view why) const;

  /// Requires that every operand with elements has memory: Views of a plan have none.
  /// \throws DimensionMismatch
  const Operands& require_addresses() const;

  /// Requires `condition` on the extents; `expected` says in words what was expected.
  /// \throws DimensionMismatch
  const Operands& require_extents(bool condition, std::string_view expected) const;

  /// Requires that the operand `role`, where present, has storage type `dtype`.
  /// \throws DimensionMismatch
  const Operands& require_dtype(std::string_view role, DType dtype) const;

  /// Requires that the operand `role`, where present, has a storage type that is computed with: f32, bf16, f16
  /// or f64.
  /// \throws DimensionMismatch
  const Operands& require_floating(std::string_view role) const;

  /// Requires that the operand `output` shares no memory with any other, and has each element once. It may be one
  /// of the operands `may_be` itself: the same elements in the same places.
  /// \throws DimensionMismatch
  const Operands& require_disjoint(std::string_view output,
                                   std::initializer_list<std::string_view> may_be = {}) const;

  /// Requires `condition` on an option; `sentence` says what is wrong and what to do.
  /// \throws NotSupported
  const Operands& require_option(bool condition, std::string_view sentence) const;

  /// Requires a workspace of at least `needed` bytes, aligned to `Workspace::alignment`.
  /// \throws DimensionMismatch
  const Operands& require_workspace(const Workspace& workspace, std::size_t needed) const;

  /// The same operands with `ref` in place of the one called `role`.
  Operands with(std::string_view role, const TensorRef& ref) const;

  /// `x[3,5] weight[5]`: each operand by role with its extents.
  std::string describe() const;

 private:
  std::string m_function;
  std::vector<Operand> m_operands;
};

namespace Impl {
/// Requires memory behind `bytes` bytes that a function is about to use. Blocks of a ledger that only counts have
/// none.
/// \param function the public function's name without namespace
/// \param what     whose memory it is
/// \throws DimensionMismatch
void require_allocated(const char* function, std::string_view what, const void* data, std::size_t bytes);

/// Requires that none of the named extents is negative.
/// \param function the public function's name without namespace
/// \throws DimensionMismatch
void require_not_negative(const char* function,
                          std::initializer_list<std::pair<const char*, std::int64_t>> extents);
}  // namespace Impl

}  // namespace kformer
