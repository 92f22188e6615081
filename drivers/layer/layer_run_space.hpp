// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>

#include "common/fill.hpp"
#include "layer/layer_run.hpp"

/// \file
/// LayerRun on one execution space; compiled once per space.

namespace kformer::drivers {

/// Copies a contiguous device tensor to the host, as double.
template <class Exec>
HostArray download(const TensorRef& ref) {
  HostArray array;
  for (int r = 0; r < ref.rank; ++r) array.shape.push_back(static_cast<std::size_t>(ref.extent[r]));
  array.values.resize(static_cast<std::size_t>(ref.size()));
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const Kokkos::View<const T*, typename Exec::memory_space, Unmanaged> device(static_cast<const T*>(ref.data),
                                                                                array.values.size());
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, device);
    for (std::size_t i = 0; i < array.values.size(); ++i)
      array.values[i] = static_cast<double>(static_cast<compute_t<T>>(host(i)));
  });
  return array;
}

/// Copies host values into a contiguous device tensor, rounding to its type.
template <class Exec>
void upload(const HostArray& array, const TensorRef& ref) {
  dispatch_dtype(ref.dtype, [&]<class T>(std::type_identity<T>) {
    using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    const Kokkos::View<T*, typename Exec::memory_space, Unmanaged> device(static_cast<T*>(ref.data),
                                                                          array.values.size());
    const auto host = Kokkos::create_mirror_view(Kokkos::WithoutInitializing, device);
    for (std::size_t i = 0; i < array.values.size(); ++i)
      host(i) = T(static_cast<compute_t<T>>(array.values[i]));
    Kokkos::deep_copy(device, host);
  });
}

template <class Exec, class T>
class LayerRunOn final : public LayerRun {
 public:
  LayerRunOn(const LayerTask& task, Ledger& ledger)
      : m_task(task), m_layer(task.config, task.shape, task.algorithm, task.mode, ledger) {
    const bool training = task.mode == LayerMode::training;
    MemoryLayout layout;
    const std::int64_t count = task.shape.rows() * task.config.hidden_size;
    const auto x = layout.reserve<T>(count), y = layout.reserve<T>(count);
    const auto dy = layout.reserve<T>(training ? count : 0), dx = layout.reserve<T>(training ? count : 0);
    m_block = ledger.allocate<memory_space>(MemoryClass::activations, "kformer-layer::inputs_and_outputs",
                                            layout.bytes());
    const auto at = [&](std::size_t offset) {
      return Matrix(m_block.template at<T>(offset), task.shape.rows(), task.config.hidden_size);
    };
    m_x = at(x);
    m_y = at(y);
    if (training) {
      m_dy = at(dy);
      m_dx = at(dx);
    }
  }

  void prepare() override {
    m_layer.prepare(m_exec);
    const auto fill = [&](const TensorRef& ref, const std::string& name, std::uint64_t stream, double scale,
                          double shift) {
      if (m_task.tensors)
        upload<Exec>(m_task.tensors->at(name), ref);
      else
        fill_random(m_exec, static_cast<T*>(ref.data), ref.size(), mix(m_task.seed) + stream, scale, shift);
    };
    fill(erase(m_x), "hidden_states", 0, 1, 0);
    std::uint64_t stream = 1;
    for (const Parameter& parameter : m_layer.parameters()) {
      // Norm weights lie around one; a matrix keeps the size of what it multiplies: scale ≈ 1/√in, a power of
      // two.
      const bool vector = parameter.weight.rank == 1, norm = vector && !parameter.name.ends_with("bias");
      const double scale =
          vector ? 0.125
                 : std::exp2(-std::round(0.5 * std::log2(static_cast<double>(parameter.weight.extent[1]))));
      fill(parameter.weight, parameter.name, ++stream, scale, norm ? 1 : 0);
    }
    if (m_task.mode == LayerMode::training) {
      fill(erase(m_dy), "grad_output", 1, 1, 0);
      m_layer.zero_gradients(m_exec);
    }
    fence();
  }

  void forward() override { m_layer.forward(m_exec, m_x, m_y); }
  void backward() override { m_layer.backward(m_exec, m_x, m_dy, m_dx); }
  void fence() override { m_exec.fence("kformer-layer"); }

  Samples sample(bool backward, const SamplingPlan& plan, double warm_seconds,
                 const std::function<bool()>& stop) override {
    if (backward) return drivers::sample(m_exec, plan, warm_seconds, [this] { this->backward(); }, stop);
    return drivers::sample(m_exec, plan, warm_seconds, [this] { forward(); }, stop);
  }

  HostArrays results(bool gradients) override {
    fence();
    HostArrays all;
    const auto batch = static_cast<std::size_t>(m_task.shape.batch),
               seq = static_cast<std::size_t>(m_task.shape.seq_len);
    const auto add = [&](const std::string& name, const Matrix& rows) {
      HostArray array = download<Exec>(erase(rows));
      array.shape = {batch, seq, array.shape[1]};
      all.emplace(name, std::move(array));
    };
    add("output", m_y);
    if (!gradients) return all;
    add("grad.hidden_states", m_dx);
    for (const Parameter& parameter : m_layer.parameters())
      all.emplace("grad." + parameter.name, download<Exec>(parameter.gradient));
    return all;
  }

 private:
  using memory_space = typename Exec::memory_space;
  using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  LayerTask m_task;
  Exec m_exec;
  DecoderLayer<Exec, T> m_layer;
  MemoryBlock<memory_space> m_block;
  Matrix m_x, m_y, m_dy, m_dx;
};

/// FLOP/s of C = A Bᵀ with n × n matrices, the best of a few.
template <class Exec, class T>
double matmul_rate(const Exec& exec, std::int64_t n) {
  using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, typename Exec::memory_space>;
  const Matrix a("kformer::drivers::a", n, n), b("kformer::drivers::b", n, n), c("kformer::drivers::c", n, n);
  fill_random(exec, a.data(), n * n, 1, 1);
  fill_random(exec, b.data(), n * n, 2, 1);
  const auto launch = [&] { linear_forward(exec, a, b, c); };
  const double warm = seconds_of(exec, launch);
  const Samples samples =
      sample(exec, {.repeats = 5, .min_time_s = 0.02, .max_time_s = 2}, warm, launch, [] { return false; });
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / samples.quantile(0);
}

template <class Exec, class Array>
void copy(const Exec& exec, const Array& from, const Array& to) {
  Kokkos::parallel_for(
      "kformer::drivers::copy", Kokkos::RangePolicy<Exec>(exec, 0, static_cast<std::int64_t>(to.size())),
      KOKKOS_LAMBDA(std::int64_t i) { to(i) = from(i); });
}

/// byte/s of a copy of arrays far larger than the caches, reads and writes counted, the best of a few.
template <class Exec>
double copy_bandwidth(const Exec& exec) {
  const std::int64_t n = std::int64_t(1) << 24;
  using Array = Kokkos::View<double*, typename Exec::memory_space>;
  const Array from("kformer::drivers::from", n), to("kformer::drivers::to", n);
  const auto launch = [&] { copy(exec, from, to); };
  const double warm = seconds_of(exec, launch);
  const Samples samples =
      sample(exec, {.repeats = 5, .min_time_s = 0.02, .max_time_s = 2}, warm, launch, [] { return false; });
  return 2.0 * sizeof(double) * static_cast<double>(n) / samples.quantile(0);
}

template <class Exec>
std::unique_ptr<LayerRun> make_layer_run_on(DType dtype, const LayerTask& task, Ledger& ledger) {
  return dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<LayerRun> {
    return std::make_unique<LayerRunOn<Exec, T>>(task, ledger);
  });
}

template <class Exec>
MachineLimits measure_machine_on() {
  const Exec exec;
  return {matmul_rate<Exec, float>(exec, 1024), matmul_rate<Exec, double>(exec, 1024), copy_bandwidth(exec)};
}

}  // namespace kformer::drivers
