// SPDX-License-Identifier: MIT
#include "kformer/core/operands.hpp"

#include <algorithm>
#include <sstream>

#include "core/overlap.hpp"
#include "kformer/core/error.hpp"

namespace kformer {

Operands::Operands(const char* function, std::initializer_list<Operand> operands)
    : m_function(std::string("kformer::") + function), m_operands(operands) {}

Operands Operands::with(std::string_view role, const TensorRef& ref) const {
  Operands changed = *this;
  for (auto& operand : changed.m_operands)
    if (operand.role == role) operand.ref = ref;
  return changed;
}

namespace {
const std::string no_memory = " has no memory (null pointer, or a ledger that only counts); allocate it";
}

void Impl::require_allocated(const char* function, std::string_view what, const void* data, std::size_t bytes) {
  if (data == nullptr && bytes > 0)
    throw DimensionMismatch(std::string("kformer::") + function + ": " + std::string(what) + no_memory);
}

void Impl::require_not_negative(const char* function,
                                std::initializer_list<std::pair<const char*, std::int64_t>> extents) {
  for (const auto& [name, extent] : extents)
    if (extent < 0)
      throw DimensionMismatch(std::string("kformer::") + function + ": " + name + " is " +
                              std::to_string(extent) + "; it must not be negative");
}

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

const Operands& Operands::require_addresses() const {
  // By the extents: the size() of a Kokkos View without an address is 0.
  for (const auto& [role, ref] : m_operands)
    if (ref.data == nullptr && ref.size() > 0)
      throw DimensionMismatch(m_function + ": " + role + no_memory + ": " + describe());
  return *this;
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

const Operands& Operands::require_dense(std::string_view why) const {
  for (const auto& [role, ref] : m_operands) {
    if (!ref.present() || ref.size() == 0) continue;
    std::int64_t expected = 1;
    for (int r = ref.rank - 1; r >= 0; --r) {
      if (ref.extent[r] > 1 && ref.stride[r] != expected)
        throw DimensionMismatch(m_function + ": " + role + " must be dense and row-major, because " +
                                std::string(why) + "; its stride along extent " + std::to_string(r) + " is " +
                                std::to_string(ref.stride[r]) + ", expected " + std::to_string(expected) +
                                "; use Kokkos::LayoutRight or copy it: " + describe());
      expected *= ref.extent[r];
    }
  }
  return *this;
}

const Operands& Operands::require_extents(bool condition, std::string_view expected) const {
  if (condition) return *this;
  throw DimensionMismatch(m_function + ": extents do not match: " + describe() + "; expected " +
                          std::string(expected));
}

const Operands& Operands::require_dtype(std::string_view role, DType dtype) const {
  for (const auto& operand : m_operands) {
    if (operand.role != role || !operand.ref.present() || operand.ref.dtype == dtype) continue;
    throw DimensionMismatch(m_function + ": " + operand.role + " is stored as " + to_string(operand.ref.dtype) +
                            ", expected " + to_string(dtype) + ": " + describe());
  }
  return *this;
}

const Operands& Operands::require_floating(std::string_view role) const {
  for (const auto& operand : m_operands) {
    const DType dtype = operand.ref.dtype;
    if (operand.role != role || !operand.ref.present() || (dtype != DType::i32 && dtype != DType::u8)) continue;
    throw DimensionMismatch(m_function + ": " + operand.role + " is stored as " + to_string(dtype) +
                            ", expected f32, bf16, f16 or f64: " + describe());
  }
  return *this;
}

const Operands& Operands::require_disjoint(std::string_view output,
                                           std::initializer_list<std::string_view> may_be) const {
  const auto written = std::find_if(m_operands.begin(), m_operands.end(),
                                    [&](const Operand& operand) { return operand.role == output; });
  if (written == m_operands.end() || !written->ref.present()) return *this;
  if (Impl::overlaps_itself(written->ref))
    throw DimensionMismatch(m_function + ": elements of " + written->role +
                            " share memory; pass a View that has each of them once: " + describe());
  for (const auto& other : m_operands) {
    if (other.role == output || !Impl::overlap(written->ref, other.ref)) continue;
    const bool allowed = std::find(may_be.begin(), may_be.end(), other.role) != may_be.end();
    if (allowed && Impl::same_elements(written->ref, other.ref)) continue;
    throw DimensionMismatch(m_function + ": " + written->role + " shares memory with " + other.role +
                            (allowed ? ", but is not the same View; pass the same View or a separate one: "
                                     : "; pass a separate View: ") +
                            describe());
  }
  return *this;
}

const Operands& Operands::require_option(bool condition, std::string_view sentence) const {
  if (condition) return *this;
  throw NotSupported(m_function + ": " + std::string(sentence));
}

const Operands& Operands::require_workspace(const Workspace& workspace, std::size_t needed) const {
  if (workspace.suffices(needed)) return *this;
  std::ostringstream text;
  text << m_function << ": ";
  if (workspace.bytes < needed)
    text << "the workspace has " << workspace.bytes << " bytes, " << needed << " are needed; ask " << m_function
         << "_workspace_bytes: ";
  else
    text << "the workspace begins at " << workspace.data << ", expected a multiple of " << Workspace::alignment
         << " bytes; pass the beginning of a Kokkos allocation: ";
  throw DimensionMismatch(text.str() + describe());
}

}  // namespace kformer
