// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/model/decoder_layer.hpp"
#include "measure/fill.hpp"
#include "scaling/workload.hpp"

/// \file
/// Definitions of the benches on one execution space; compiled once per space.

namespace kformer::drivers {

template <class Exec, class T>
class LayerBenchOn final : public LayerBench {
 public:
  LayerBenchOn(const LearnerTask& task, Ledger& ledger)
      : m_layer(task.config, own(task), task.trainer.layer, ledger) {
    const LayerOptions& options = task.trainer.layer;
    const std::int64_t rows = own(task).rows() / (options.sequence_parallel ? options.tensor->size() : 1);
    Arena<typename Exec::memory_space> arena;
    for (auto* matrix : {&m_x, &m_y, &m_dy, &m_dx}) arena.add(*matrix, rows, task.config.hidden_size);
    m_block = arena.allocate(ledger, MemoryClass::activations, "kformer-scaling::inputs_and_outputs");
    if (m_x.data() == nullptr) return;  // it only counts
    m_layer.prepare(m_exec);
    std::uint64_t stream = 0;
    const auto fill = [&](void* data, std::int64_t size, double scale) {
      measure::fill_random(m_exec, static_cast<T*>(data), size, measure::mix(++stream), scale, 0);
    };
    for (const Parameter& p : m_layer.parameters()) fill(p.weight.data, p.weight.size(), 0.05);
    for (const auto* matrix : {&m_x, &m_dy}) fill(matrix->data(), static_cast<std::int64_t>(matrix->size()), 1);
    m_exec.fence("kformer-scaling::prepare");
  }

  void forward() override {
    m_layer.forward(m_exec, m_x, m_y);
    m_exec.fence("kformer-scaling::forward");
  }
  void backward() override {
    m_layer.backward(m_exec, m_x, m_dy, m_dx);
    m_exec.fence("kformer-scaling::backward");
  }
  void whole_backward() override {
    m_layer.backward(m_exec, m_x, m_dy, m_dx);
    m_layer.backward_weights(m_exec, m_x);
    m_exec.fence("kformer-scaling::whole_backward");
  }

 private:
  using memory_space = typename Exec::memory_space;

  static LayerShape own(const LearnerTask& task) {
    LayerShape shape = task.trainer.shape;
    if (task.trainer.layer.context) shape.seq_len /= task.trainer.layer.context->size();
    return shape;
  }

  Exec m_exec;
  DecoderLayer<Exec, T> m_layer;
  MemoryBlock<memory_space> m_block;
  BlockMatrix<memory_space, T> m_x, m_y, m_dy, m_dx;
};

template <class Exec>
class LinkBenchOn final : public LinkBench {
 public:
  LinkBenchOn(const std::shared_ptr<Communicator>& ranks, std::size_t bytes, Ledger& ledger)
      : m_ranks(ranks, {.log = std::make_shared<CommunicationLog>()}, ledger),
        m_size(ranks->size()),
        m_rank(ranks->rank()) {
    Arena<typename Exec::memory_space> arena;
    arena.add(m_all, static_cast<std::int64_t>(bytes / sizeof(float)) * m_size);
    arena.add(m_sum, static_cast<std::int64_t>(bytes / sizeof(float)));
    m_block = arena.allocate(ledger, MemoryClass::communication, "kformer-scaling::messages");
    if (m_all.data() != nullptr) Kokkos::deep_copy(m_exec, m_all, 0.0F);  // else it only counts
  }

  void exchange(std::size_t bytes, LinkUse use) override {
    const std::size_t each = bytes / sizeof(float);
    const auto part = [&](std::size_t r) {
      return Kokkos::subview(m_all, std::pair(r * each, (r + 1) * each));
    };
    const auto all = Kokkos::subview(m_all, std::pair(std::size_t(0), static_cast<std::size_t>(m_size) * each));
    switch (use) {
      case LinkUse::sum:
        m_ranks.reduce_scatter(m_exec, all, Kokkos::subview(m_sum, std::pair(std::size_t(0), each)));
        break;
      case LinkUse::gather:
        m_ranks.all_gather(m_exec, part(static_cast<std::size_t>(m_rank)), all);
        break;
      case LinkUse::message:
        for (const int sender : {0, 1})
          if (m_rank == sender)
            m_ranks.send(m_exec, part(0), 1 - sender);
          else
            m_ranks.receive(m_exec, part(0), sender);
    }
    m_exec.fence("kformer-scaling::exchange");
  }

 private:
  Exec m_exec;
  Collectives<Exec> m_ranks;  // with a log of its own: the calls of a step are counted
  int m_size, m_rank;
  BlockVector<typename Exec::memory_space, float> m_all, m_sum;
  MemoryBlock<typename Exec::memory_space> m_block;
};

template <class Exec>
std::unique_ptr<LayerBench> make_layer_bench_on(const LearnerTask& task, Ledger& ledger) {
  return dispatch_dtype(task.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<LayerBench> {
    return std::make_unique<LayerBenchOn<Exec, T>>(task, ledger);
  });
}

template <class Exec>
std::unique_ptr<LinkBench> make_link_bench_on(const std::shared_ptr<Communicator>& ranks, std::size_t bytes,
                                              Ledger& ledger) {
  return std::make_unique<LinkBenchOn<Exec>>(ranks, bytes, ledger);
}

template <class Exec>
TrainedArrays trained_arrays_on(const LearnerTask& task) {
  const auto ledger = Ledger::create(Ledger::Mode::count);
  return dispatch_dtype(task.dtype, [&]<class T>(std::type_identity<T>) {
    Trainer<Exec, T> trainer(task.config, task.trainer, *ledger);
    TrainedArrays arrays;
    for (const auto& part : trainer.parts()) {
      for (const ParameterGroup& group : part.gradient_groups())
        arrays.ends.push_back(group.end + arrays.elements.size());
      for (const Parameter& p : part.trained()) {
        arrays.elements.push_back(p.gradient.size());
        arrays.partial.push_back(p.partial_gradient);
        arrays.tied.push_back(p.tied);
        arrays.copy.push_back(p.copy);
      }
    }
    std::ranges::sort(arrays.ends);
    return arrays;
  });
}

}  // namespace kformer::drivers
