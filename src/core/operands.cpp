// SPDX-License-Identifier: MIT
#include "kformer/core/operands.hpp"

namespace kformer {

Operands::Operands(const char* function, std::initializer_list<Operand> operands)
    : m_function(std::string("kformer::") + function), m_operands(operands) {}

std::string Operands::describe() const {
  std::string text;
  for (const auto& [role, ref] : m_operands) {
    if (!ref.present()) continue;
    if (!text.empty()) text += ' ';
    text += role;
    text += '[';
    for (int r = 0; r < ref.rank; ++r) text += (r ? "," : "") + std::to_string(ref.extent[r]);
    text += ']';
  }
  return text;
}

const Operands& Operands::require_unit_stride() const {
  for (const auto& [role, ref] : m_operands) {
    if (!ref.present() || ref.rank == 0) continue;
    const int last = ref.rank - 1;
    if (ref.extent[last] < 2 || ref.stride[last] == 1) continue;
    throw DimensionMismatch(m_function + ": " + role +
                            " must have unit stride along its last extent, because kernels read rows " +
                            "contiguously; its stride there is " + std::to_string(ref.stride[last]) +
                            "; use Kokkos::LayoutRight or copy it: " + describe());
  }
  return *this;
}

const Operands& Operands::require_dense(const std::string& why) const {
  for (const auto& [role, ref] : m_operands) {
    if (!ref.present() || ref.size() == 0) continue;
    std::int64_t expected = 1;
    for (int r = ref.rank - 1; r >= 0; --r) {
      if (ref.extent[r] > 1 && ref.stride[r] != expected)
        throw DimensionMismatch(m_function + ": " + role + " must be dense and row-major, because " + why +
                                "; its stride along extent " + std::to_string(r) + " is " +
                                std::to_string(ref.stride[r]) + ", expected " + std::to_string(expected) +
                                "; use Kokkos::LayoutRight or copy it: " + describe());
      expected *= ref.extent[r];
    }
  }
  return *this;
}

const Operands& Operands::require_extents(bool condition, const std::string& expected) const {
  if (condition) return *this;
  throw DimensionMismatch(m_function + ": extents do not match: " + describe() + "; expected " + expected);
}

const Operands& Operands::require_dtype(const char* role, DType dtype) const {
  for (const auto& operand : m_operands) {
    if (std::string(operand.role) != role || !operand.ref.present() || operand.ref.dtype == dtype) continue;
    throw DimensionMismatch(m_function + ": " + role + " is stored as " + to_string(operand.ref.dtype) +
                            ", expected " + to_string(dtype) + ": " + describe());
  }
  return *this;
}

const Operands& Operands::require_option(bool condition, const std::string& sentence) const {
  if (condition) return *this;
  throw NotSupported(m_function + ": " + sentence);
}

const Operands& Operands::require_workspace(std::size_t given, std::size_t needed) const {
  if (given >= needed) return *this;
  throw DimensionMismatch(m_function + ": the workspace has " + std::to_string(given) + " bytes, " +
                          std::to_string(needed) + " are needed; ask " + m_function +
                          "_workspace_bytes: " + describe());
}

}  // namespace kformer
