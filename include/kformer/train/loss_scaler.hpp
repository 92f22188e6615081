// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <vector>

#include "kformer/memory/transfer.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/ops/adamw.hpp"
#include "kformer/train/loss_scaling.hpp"

namespace kformer {

/// The loss scale of a model, and the gradient norm that controls it.
/// \tparam T the storage type of the model
template <class Exec, Scalar T>
class LossScaler {
 public:
  /// The type of gradients.
  using C = compute_t<T>;
  /// One number in the memory of the gradients. Its extent is of run time: GCC 14 evaluates copies of a `C[1]` of
  /// Kokkos 5.0 for more than a minute.
  using Norm = Kokkos::View<C*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  /// Books and allocates what the norm needs.
  /// \param parameters those whose gradients count
  /// \param scaling    how the scale is chosen; without it the scale is 1
  /// \param ledger     the memory is of the class optimizer; transfers of the norm are counted
  /// \throws NotSupported if an option is out of range
  /// \throws OutOfMemory with the ledger
  LossScaler(const std::vector<Parameter>& parameters, const std::optional<LossScaling>& scaling,
             Ledger& ledger)
      : m_ledger(ledger.shared_from_this()),
        m_scale(scaling.value_or(LossScaling{.initial = 1, .growth_interval = 0})) {
    for (const Parameter& p : parameters) m_gradients.push_back({.gradient = p.gradient});
    const std::size_t bytes = gradient_norm_workspace_bytes(Exec(), m_gradients);
    MemoryLayout layout;
    const auto norm = layout.reserve<C>(1),
               workspace = layout.reserve<std::byte>(static_cast<std::int64_t>(bytes));
    m_block = ledger.allocate<typename Exec::memory_space>(MemoryClass::optimizer, "LossScaler::norm",
                                                           layout.bytes());
    m_norm = Norm(m_block.template at<C>(norm), 1);
    m_workspace = Bytes(m_block.template at<std::byte>(workspace), bytes);
  }

  /// The factor on the loss before backward.
  double scale() const { return m_scale.scale(); }
  /// The scale with its history, for checkpoints.
  DynamicLossScale& state() { return m_scale; }
  /// The same, to read.
  const DynamicLossScale& state() const { return m_scale; }

  /// Launches the norm of all gradients of the scaled loss.
  void measure(const Exec& exec) const { gradient_norm(exec, m_gradients, m_norm, m_workspace); }
  /// The location of the result, for the kernels that follow.
  const Norm& measured() const { return m_norm; }

  /// Waits for the last norm.
  /// \param exec the instance of `measure`
  /// \returns the norm without the loss scale
  double wait(const Exec& exec) {
    C norm = 0;
    transfer<Kokkos::HostSpace, typename Exec::memory_space>(exec, *m_ledger, &norm, m_norm.data(), sizeof(C));
    exec.fence("kformer::LossScaler::wait");
    return remember(norm);
  }

  /// In place of `measure` and `wait`: a norm that is known, such as that of gradients on several ranks.
  /// \param exec the instance of the kernels that follow
  /// \param norm of the scaled loss
  /// \returns the norm without the loss scale
  double set(const Exec& exec, double norm) {
    Kokkos::deep_copy(exec, m_norm, static_cast<C>(norm));
    return remember(static_cast<C>(norm));
  }

  /// Adapts the scale to the norm that was waited for.
  /// \param others_finite whether gradients that the norm does not see were finite, such as those of inputs
  /// \returns whether all gradients were finite; if not, discard them
  bool adapt(bool others_finite = true) { return m_scale.update(m_finite && others_finite); }

  /// `wait`, then `adapt`.
  /// \param exec          the instance
  /// \param others_finite as of `adapt`
  /// \returns whether all gradients were finite; if not, discard them
  bool update(const Exec& exec, bool others_finite = true) {
    wait(exec);
    return adapt(others_finite);
  }

  /// The gradient norm that was last waited for, without the loss scale.
  double norm() const { return m_gradient_norm; }

 private:
  using Bytes = Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  double remember(C norm) {
    m_finite = std::isfinite(norm);
    return m_gradient_norm = static_cast<double>(norm) / scale();
  }

  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  DynamicLossScale m_scale;
  std::vector<AdamWParameter> m_gradients;
  MemoryBlock<typename Exec::memory_space> m_block;
  Norm m_norm;
  Bytes m_workspace;
  double m_gradient_norm = 0;
  bool m_finite = true;
};

}  // namespace kformer
