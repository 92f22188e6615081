// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kformer/core/move_guard.hpp"
#include "kformer/core/option_checks.hpp"
#include "kformer/core/region.hpp"
#include "kformer/core/types/optimizer_states.hpp"
#include "kformer/train/loss_scaler.hpp"

/// \file
/// AdamW with the state that it keeps for a model, for mixed-precision training (Micikevicius et al.,
/// arXiv:1710.03740).

namespace kformer {

/// Options of `Optimizer`.
struct OptimizerOptions {
  double beta1 = 0.9;       ///< decay of the running mean of the gradient, in [0, 1)
  double beta2 = 0.999;     ///< decay of the running mean of its square, in [0, 1)
  double eps = 1e-8;        ///< added to √v̂
  double weight_decay = 0;  ///< λ of matrices and of magnitudes; norm weights and biases do not decay
  double max_norm = 0;      ///< gradients are multiplied by min(1, max_norm / (global norm + 10⁻⁶)); 0: by 1
  OptimizerStates states = OptimizerStates::full;  ///< storage of the running means
  bool master = true;                         ///< whether 16-bit weights are rounded from float master weights
  std::optional<LossScaling> loss_scaling{};  ///< loss scaling; off if empty
};

/// What an optimizer counts, for checkpoints. With the arrays of `Optimizer::parameters` it is the whole state.
struct OptimizerState {
  std::int64_t steps = 0;       ///< that counted
  std::int64_t skipped = 0;     ///< that did not
  double loss_scale = 1;        ///< factor on the loss of the next step
  std::int64_t good_steps = 0;  ///< since the loss scale last changed
};

/// The optimizer of a model whose weights and activations are stored in T. It owns master weights, states, and
/// the loss scale, booked in a ledger, and allocates only in its constructor.
///
///     Optimizer<Exec, T> optimizer(layer.parameters(), {.loss_scaling = LossScaling{}}, ledger);
///     optimizer.prepare(exec);                    // the weights are there
///     for (...) {
///       layer.zero_gradients(exec);
///       layer.forward(...);
///       layer.backward(...);                      // from dloss · optimizer.scaler().scale()
///       if (!optimizer.step(exec, learning_rate)) // skips gradients that are not finite
///         report(optimizer.skipped_steps());
///     }
///
/// Regions for Kokkos Tools: gradient_norm, adamw.
template <class Exec, Scalar T>
class Optimizer {
 public:
  /// Books and allocates everything.
  /// \param parameters with gradients; they must outlive the optimizer
  /// \param options    betas and so on
  /// \param ledger     the memory is of the class optimizer
  /// \throws NotSupported if an option is out of range
  /// \throws DimensionMismatch if a parameter has no gradient
  /// \throws OutOfMemory with the ledger
  Optimizer(const std::vector<Parameter>& parameters, const OptimizerOptions& options, Ledger& ledger);

  /// Copies the weights to the master weights and resets all states; call it after the weights are written.
  /// \throws DimensionMismatch if states or weights have no memory, because a ledger only counts
  void prepare(const Exec& exec);

  /// One step of `adamw` with the gradients of the scaled loss. Waits for their norm: if it is not finite,
  /// nothing is written and the loss scale backs off.
  /// \throws NotSupported if `prepare` was not called, `measure` has begun a step, or the learning rate is negative
  /// \returns whether the step counted; a run in which most steps do not has a fault in its data or its loss scale
  [[nodiscard]] bool step(const Exec& exec, double learning_rate);

  /// The first half of a step for callers that decide by the norm: waits for the norm of the gradients. `update`
  /// or `skip` follows.
  /// \throws NotSupported if `prepare` was not called
  /// \returns the norm without the loss scale, before it is clipped
  [[nodiscard]] double measure(const Exec& exec);

  /// In place of `measure`, if the parameters are not all that the norm is of.
  /// \param exec the instance
  /// \param norm of the gradients of the scaled loss
  /// \throws NotSupported if `prepare` was not called
  /// \returns the norm without the loss scale, before it is clipped
  double set_norm(const Exec& exec, double norm);

  /// The second half of `step`, with the norm of the last `measure`.
  /// \throws NotSupported if `prepare` or `measure` was not called, or the learning rate is negative
  /// \returns whether the step counted
  [[nodiscard]] bool update(const Exec& exec, double learning_rate);

  /// In place of `update`: nothing is written and the step does not count, though its gradients are finite.
  /// \throws NotSupported if `measure` was not called
  void skip();

  /// Its counts and the loss scale.
  OptimizerState state() const;
  /// Restores the counts, after `prepare`. The caller restores the arrays of the same step.
  /// \throws NotSupported if the loss scale is out of its bounds, or a number is negative
  void restore(const OptimizerState& state);

  /// Steps that counted since `prepare`.
  std::int64_t steps() const { return m_steps; }
  /// Steps that were skipped since `prepare`.
  std::int64_t skipped_steps() const { return m_skipped; }
  /// The loss scale, and the norm of the last gradients.
  LossScaler<Exec, T>& scaler() { return m_scaler; }
  /// The same, to read.
  const LossScaler<Exec, T>& scaler() const { return m_scaler; }
  /// The arrays that the steps update, in the order of the parameters.
  const std::vector<AdamWParameter>& parameters() const { return m_parameters; }

 private:
  using C = compute_t<T>;
  using memory_space = typename Exec::memory_space;

  AdamWOptions adamw_options(double learning_rate) const;
  void require_prepared(const char* function) const;
  void require_open(bool open, const char* function, const char* sentence) const;
  void launch_norm(const char* function, const Exec& exec) const;
  void launch_update(const char* function, const Exec& exec, double learning_rate) const;
  bool count();

  OptimizerOptions m_options;
  LossScaler<Exec, T> m_scaler;
  std::vector<AdamWParameter> m_parameters;
  std::map<double, std::vector<AdamWParameter>> m_by_rate;  // by the factor of their learning rate
  MemoryBlock<memory_space> m_block;
  Impl::MoveGuard m_guard;
  bool m_prepared = false;
  std::int64_t m_steps = 0, m_skipped = 0;
  bool m_measured = false;  // since the last update
};

namespace Impl {

/// `to[i] = from[i]`, from a storage type to the type it is computed in.
template <class T, class Exec>
void widen(const Exec& exec, const TensorRef& from, const TensorRef& to) {
  using C = compute_t<T>;
  const T* source = static_cast<const T*>(from.data);
  C* target = static_cast<C*>(to.data);
  Kokkos::parallel_for(
      "kformer::Optimizer::prepare", Kokkos::RangePolicy<Exec>(exec, 0, from.size()),
      KOKKOS_LAMBDA(std::int64_t i) { target[i] = static_cast<C>(source[i]); });
}

/// A dense array with these extents at another address.
inline TensorRef dense_like(TensorRef array, DType dtype, void* data) {
  array.dtype = dtype;
  array.data = data;
  return array;
}

}  // namespace Impl

template <class Exec, Scalar T>
Optimizer<Exec, T>::Optimizer(const std::vector<Parameter>& parameters, const OptimizerOptions& options,
                              Ledger& ledger)
    : m_options(options), m_scaler(parameters, options.loss_scaling, ledger) {
  Impl::require_enumerator("Optimizer", "states", options.states);
  // Vectors do not decay, so `adamw` may not see it.
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay)))
    throw NotSupported("kformer::Optimizer: weight_decay must be finite and not negative, got " +
                       std::to_string(options.weight_decay));
  const bool master = options.master && sizeof(T) == 2, coded = options.states == OptimizerStates::eight_bit;
  // Placed in two passes: the addresses are known when the bytes are.
  const auto place = [&](MemoryLayout& layout) {
    m_parameters.clear();
    for (const Parameter& p : parameters) {
      if (!p.gradient.present())
        throw DimensionMismatch("kformer::Optimizer: '" + p.name +
                                "' has no gradient; construct the model with LayerMode::training");
      const std::int64_t size = p.weight.size(), blocks = (size + adamw_block - 1) / adamw_block;
      const auto array = [&](bool wanted, DType dtype) {
        if (!wanted) return TensorRef{};
        const std::size_t at =
            dtype == DType::u8 ? layout.reserve<std::uint8_t>(size) : layout.reserve<C>(size);
        return Impl::dense_like(p.weight, dtype, m_block.template at<std::byte>(at));
      };
      const auto scales = [&] {
        if (!coded) return TensorRef{};
        const std::size_t at = layout.reserve<float>(blocks);
        return tensor_ref(Kokkos::View<float*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
            m_block.template at<float>(at), static_cast<std::size_t>(blocks)));
      };
      const DType states = coded ? DType::u8 : dtype_of<C>;
      m_parameters.push_back({.weight = p.weight,
                              .gradient = p.gradient,
                              .master = array(master, dtype_of<C>),
                              .m = array(true, states),
                              .v = array(true, states),
                              .m_scale = scales(),
                              .v_scale = scales(),
                              .weight_decay = p.weight.rank > 1 || p.vector_decays ? options.weight_decay : 0,
                              .name = p.name});
    }
  };
  MemoryLayout layout;
  place(layout);
  m_block = ledger.allocate<memory_space>(MemoryClass::optimizer, "Optimizer::states", layout.bytes());
  layout = {};
  place(layout);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double factor = parameters[i].learning_rate_factor;
    if (!(factor >= 0 && std::isfinite(factor)))
      throw NotSupported("kformer::Optimizer: the learning_rate_factor of '" + parameters[i].name +
                         "' must be finite and not negative, got " + std::to_string(factor));
    m_by_rate[factor].push_back(m_parameters[i]);
  }
  Impl::on_behalf_of("Optimizer", [&] {
    Impl::AdamW{m_parameters, tensor_ref(m_scaler.measured()), adamw_options(0)}.check();
  });
}

template <class Exec, Scalar T>
AdamWOptions Optimizer<Exec, T>::adamw_options(double learning_rate) const {
  return {.learning_rate = learning_rate,
          .beta1 = m_options.beta1,
          .beta2 = m_options.beta2,
          .eps = m_options.eps,
          .step = m_steps + 1,
          .gradient_scale = 1 / m_scaler.scale(),
          .max_norm = m_options.max_norm};
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::prepare(const Exec& exec) {
  m_guard.require("Optimizer", "prepare");
  Impl::require_allocated("Optimizer::prepare", "the optimizer", m_block.data(), m_block.bytes());
  for (const AdamWParameter& p : m_parameters)
    Impl::require_allocated("Optimizer::prepare", p.name, p.weight.data,
                            static_cast<std::size_t>(p.weight.size()));
  m_steps = m_skipped = 0;
  const Kokkos::View<std::byte*, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> states(m_block.data(),
                                                                                               m_block.bytes());
  Kokkos::deep_copy(exec, states, std::byte{});
  for (const AdamWParameter& p : m_parameters)
    if (p.master.present()) Impl::widen<T>(exec, p.weight, p.master);
  m_prepared = true;
  m_measured = false;
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::require_prepared(const char* function) const {
  m_guard.require("Optimizer", function);
  if (!m_prepared)
    throw NotSupported(std::string("kformer::Optimizer::") + function +
                       ": the states are undefined; call prepare(exec) once, after the weights were written");
}

// Whether `measure` has opened a step.
template <class Exec, Scalar T>
void Optimizer<Exec, T>::require_open(bool open, const char* function, const char* sentence) const {
  require_prepared(function);
  if (m_measured != open) throw NotSupported(std::string("kformer::Optimizer::") + function + ": " + sentence);
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::launch_norm(const char* function, const Exec& exec) const {
  Region region("gradient_norm");
  Impl::on_behalf_of(function, [&] { m_scaler.measure(exec); });
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::launch_update(const char* function, const Exec& exec, double learning_rate) const {
  Region region("adamw");
  Impl::on_behalf_of(function, [&] {
    for (const auto& [factor, group] : m_by_rate)
      adamw(exec, group, m_scaler.measured(), adamw_options(factor * learning_rate));
  });
}

template <class Exec, Scalar T>
bool Optimizer<Exec, T>::count() {
  const bool counts = m_scaler.adapt();
  ++(counts ? m_steps : m_skipped);
  return counts;
}

template <class Exec, Scalar T>
bool Optimizer<Exec, T>::step(const Exec& exec, double learning_rate) {
  require_open(false, "step", "measure has begun a step; end it with update or skip");
  launch_norm("Optimizer::step", exec);
  launch_update("Optimizer::step", exec, learning_rate);
  m_scaler.wait(exec);
  return count();
}

template <class Exec, Scalar T>
double Optimizer<Exec, T>::measure(const Exec& exec) {
  require_prepared("measure");
  launch_norm("Optimizer::measure", exec);
  m_measured = true;
  return m_scaler.wait(exec);
}

template <class Exec, Scalar T>
double Optimizer<Exec, T>::set_norm(const Exec& exec, double norm) {
  require_prepared("set_norm");
  m_measured = true;
  return m_scaler.set(exec, norm);
}

template <class Exec, Scalar T>
bool Optimizer<Exec, T>::update(const Exec& exec, double learning_rate) {
  require_open(true, "update", "the norm of these gradients is not known; call measure(exec) first, or step");
  launch_update("Optimizer::update", exec, learning_rate);
  m_measured = false;
  return count();
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::skip() {
  require_open(true, "skip", "there is no step to skip; call measure(exec) first");
  m_measured = false;
  m_scaler.adapt();
  ++m_skipped;
}

template <class Exec, Scalar T>
OptimizerState Optimizer<Exec, T>::state() const {
  return {m_steps, m_skipped, m_scaler.scale(), m_scaler.state().good_steps()};
}

template <class Exec, Scalar T>
void Optimizer<Exec, T>::restore(const OptimizerState& state) {
  require_prepared("restore");
  if (state.steps < 0 || state.skipped < 0)
    throw NotSupported("kformer::Optimizer::restore: expected no negative numbers, got " +
                       std::to_string(state.steps) + " steps and " + std::to_string(state.skipped) +
                       " skipped");
  m_scaler.state().restore(state.loss_scale, state.good_steps);
  m_steps = state.steps;
  m_skipped = state.skipped;
  m_measured = false;
}

}  // namespace kformer
