// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <optional>

#include "kformer/core/tolerance.hpp"
#include "layer/layer_run.hpp"
#include "measure/fill.hpp"
#include "measure/transfer.hpp"
#include "sweep/judge.hpp"
#include "sweep/measurement.hpp"
#include "sweep/run_on.hpp"

/// \file
/// A layer run on one execution space; compiled once per space.

namespace kformer::drivers {

/// Whether every element is finite; waits.
template <class Exec, class V>
bool all_finite(const Exec& exec, const V& rows) {
  using C = compute_t<typename V::non_const_value_type>;
  const auto* data = rows.data();
  std::int64_t others = 0;
  Kokkos::parallel_reduce(
      "kformer::drivers::all_finite",
      Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(rows.size())),
      KOKKOS_LAMBDA(std::int64_t i, std::int64_t& count) {
        if (!Kokkos::isfinite(static_cast<C>(data[i]))) ++count;
      },
      others);
  return others == 0;
}

template <class Exec, class T>
class LayerRunOn final : public RunOn<Exec> {
 public:
  LayerRunOn(const LayerTask& task, Ledger& ledger)
      : RunOn<Exec>("kformer-layer"),
        m_task(task),
        m_layer(task.config, task.shape,
                {.attention = task.algorithm, .mode = task.mode(), .compute = task.precision.compute}, ledger) {
    const bool training = task.mode() == LayerMode::training;
    MemoryLayout layout;
    const std::int64_t count = task.shape.rows() * task.config.hidden_size;
    const auto x = layout.reserve<T>(count), y = layout.reserve<T>(count);
    const auto dy = layout.reserve<T>(training ? count : 0), dx = layout.reserve<T>(training ? count : 0);
    m_block =
        ledger.allocate(m_exec, MemoryClass::activations, "kformer-layer::inputs_and_outputs", layout.bytes());
    const auto at = [&](std::size_t offset) {
      return Matrix(m_block.template at<T>(offset), task.shape.rows(), task.config.hidden_size);
    };
    m_x = at(x);
    m_y = at(y);
    if (training) {
      m_dy = at(dy);
      m_dx = at(dx);
    }
    if (task.direction == Direction::step)
      m_scaler = &m_optimizer.emplace(m_layer.parameters(), optimizer_options(task), ledger).scaler();
    else if (training && task.precision.loss_scaling != LossScalingRule::none)
      m_scaler = &m_scaler_alone.emplace(m_layer.parameters(), loss_scaling(task.precision), ledger);
  }

  void prepare(const std::function<bool()>& stop) override {
    m_layer.prepare(m_exec);
    fill(tensor_ref(m_x), "hidden_states", 0, 1, 0);
    std::uint64_t stream = 1;
    for (const Parameter& parameter : m_layer.parameters()) {
      // Norm weights are near one; a matrix keeps the magnitude of its input: scale ≈ 1/√in, a power of
      // two.
      const bool vector = parameter.weight.rank == 1, norm = vector && !parameter.name.ends_with("bias");
      const double scale =
          vector ? 0.125
                 : std::exp2(-std::round(0.5 * std::log2(static_cast<double>(parameter.weight.extent[1]))));
      fill(parameter.weight, parameter.name, ++stream, scale, norm ? 1 : 0);
    }
    if (m_task.mode() == LayerMode::training) {
      if (m_scaler) settle_loss_scale(stop);
      write_output_gradient();
      m_layer.zero_gradients(m_exec);
    }
    if (m_optimizer) m_optimizer->prepare(m_exec);
    this->fence();
  }

  void forward() override { m_layer.forward(m_exec, m_x, m_y); }
  void backward() override {
    if (m_optimizer) {
      Region region("zero_gradients");
      m_layer.zero_gradients(m_exec);
    }
    m_layer.backward(m_exec, m_x, m_dy, m_dx);
    m_gradient_scale = m_loss_scale;
  }
  void update() override {
    // Steps that are skipped are counted by the optimizer.
    static_cast<void>(m_optimizer->step(m_exec, m_task.optimizer.learning_rate));
    if (m_scaler->scale() != m_loss_scale) write_output_gradient();
  }

  measure::HostArrays results(bool gradients, ResultRows rows) override {
    this->fence();
    measure::HostArrays all;
    const auto batch = static_cast<std::size_t>(m_task.shape.batch),
               seq = static_cast<std::size_t>(m_task.shape.seq_len);
    const auto add = [&](const std::string& name, const TensorRef& ref, double divisor) {
      measure::HostArray array = measure::download<Exec>(ref);
      if (name == "output" || name == "grad.hidden_states") array.shape = {batch, seq, array.shape[1]};
      if (rows == ResultRows::judged) array = judged_part(std::move(array));
      for (double& value : array.values) value /= divisor;
      all.emplace(name, std::move(array));
    };
    add("output", tensor_ref(m_y), 1);
    if (!gradients) return all;
    add("grad.hidden_states", tensor_ref(m_dx), m_gradient_scale);
    for (const Parameter& parameter : m_layer.parameters())
      add("grad." + parameter.name, parameter.gradient, m_gradient_scale);
    if (m_optimizer && rows == ResultRows::all)
      for (const Parameter& parameter : m_layer.parameters())
        add("updated." + parameter.name, parameter.weight, 1);
    return all;
  }

  std::vector<std::size_t> result_sizes(bool gradients) const override {
    std::vector<std::size_t> sizes{m_y.size()};
    if (!gradients) return sizes;
    sizes.push_back(m_dx.size());
    for (const Parameter& parameter : m_layer.parameters())
      sizes.push_back(static_cast<std::size_t>(parameter.weight.size()));
    return sizes;
  }

  void report(Measurement& measurement) const override {
    measurement.loss_scale = m_loss_scale;
    if (m_optimizer) measurement.counted_steps = m_optimizer->steps();
    measurement.skipped_steps = m_skipped + (m_optimizer ? m_optimizer->skipped_steps() : 0);
    if (m_scaler) measurement.gradient_norm = m_scaler->norm();
  }

 private:
  using memory_space = typename Exec::memory_space;
  using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  void fill(const TensorRef& ref, const std::string& name, std::uint64_t stream, double scale, double shift,
            double factor = 1) {
    if (m_task.tensors)
      measure::upload<Exec>(m_task.tensors->at(name), ref, factor);
    else
      measure::fill_random(m_exec, static_cast<T*>(ref.data), ref.size(), measure::mix(m_task.seed) + stream,
                           factor * scale, factor * shift);
    if (m_task.changed.number > 0) change(ref, stream);
  }

  void change(const TensorRef& ref, std::uint64_t stream) {
    measure::HostArray array = measure::download<Exec>(ref);
    const std::uint64_t base = measure::mix(measure::mix(m_task.changed.number) + stream);
    dispatch_dtype(m_task.changed.dtype, [&]<class S>(std::type_identity<S>) {
      for (std::size_t i = 0; i < array.values.size(); ++i) {
        double& value = array.values[i];
        const auto chance = static_cast<double>(static_cast<std::int64_t>(measure::mix(base + i))) * 0x1p-63;
        value += chance * static_cast<double>(ulp(m_task.changed.dtype, std::abs(value)));
        value = static_cast<double>(static_cast<compute_t<S>>(S(static_cast<compute_t<S>>(value))));
      }
    });
    measure::upload<Exec>(array, ref);
  }

  void write_output_gradient() {
    m_loss_scale = m_scaler ? m_scaler->scale() : 1;
    fill(tensor_ref(m_dy), "grad_output", 1, 1, 0, m_loss_scale);
  }

  // A scale that is too large shows in the first gradients: training would skip these steps. The gradient of
  // the layer's input counts, too: in a model it would reach the weights of the layer before. Where forward
  // itself is not finite no scale helps.
  void settle_loss_scale(const std::function<bool()>& stop) {
    forward();
    if (!all_finite(m_exec, m_y)) return;
    while (!stop || !stop()) {
      write_output_gradient();
      m_layer.zero_gradients(m_exec);
      m_layer.backward(m_exec, m_x, m_dy, m_dx);
      m_scaler->measure(m_exec);
      const bool finite = m_scaler->update(m_exec, all_finite(m_exec, m_dx));
      if (finite) m_scaler->state().restore(m_loss_scale, 0);
      if (finite || m_scaler->scale() == m_loss_scale) return;
      ++m_skipped;
    }
  }

  using RunOn<Exec>::m_exec;
  LayerTask m_task;
  DecoderLayer<Exec, T> m_layer;
  MemoryBlock<memory_space> m_block;
  Matrix m_x, m_y, m_dy, m_dx;
  std::optional<Optimizer<Exec, T>> m_optimizer;
  std::optional<LossScaler<Exec, T>> m_scaler_alone;  // if there is no step
  LossScaler<Exec, T>* m_scaler = nullptr;            // whichever there is
  double m_loss_scale = 1, m_gradient_scale = 1;  // of the output gradient, and of the gradients made from it
  std::int64_t m_skipped = 0;
};

template <class Exec>
std::unique_ptr<Run> make_layer_run_on(DType dtype, const LayerTask& task, Ledger& ledger) {
  return dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Run> {
    return std::make_unique<LayerRunOn<Exec, T>>(task, ledger);
  });
}

}  // namespace kformer::drivers
