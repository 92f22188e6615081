// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cmath>
#include <map>

#include "attention/attention_run.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "measure/fill.hpp"
#include "measure/transfer.hpp"
#include "sweep/judge.hpp"
#include "sweep/run_on.hpp"

/// \file
/// An attention run on one execution space; compiled once per space.

namespace kformer::drivers {

/// Shared by both implementations of attention: inputs, outputs, gradients.
template <class Exec, class T>
class AttentionRunOn : public RunOn<Exec> {
 public:
  explicit AttentionRunOn(const AttentionTask& task) : RunOn<Exec>("kformer-attention"), m_task(task) {}

  void prepare(const std::function<bool()>&) override {
    // Uniform in 2·[−1, 1): variance 4/3, similar to normalised heads.
    write(m_q, "q", 0, 2);
    write(m_k, "k", 1, 2);
    write(m_v, "v", 2, 2);
    if (m_task.tensor("bias")) write(m_bias, "bias", 3, 1);
    if (m_task.backward) write(m_dout, "grad_out", 4, 1);
    this->fence();
  }

  measure::HostArrays results(bool gradients, ResultRows rows) override {
    this->fence();
    measure::HostArrays all;
    for (const auto& [name, ref] : result_tensors(gradients)) {
      measure::HostArray array = measure::download<Exec>(ref);
      all[name] = rows == ResultRows::judged ? judged_part(std::move(array)) : std::move(array);
    }
    return all;
  }

  std::vector<std::size_t> result_sizes(bool gradients) const override {
    std::vector<std::size_t> sizes;
    for (const auto& [name, ref] : result_tensors(gradients))
      sizes.push_back(static_cast<std::size_t>(ref.size()));
    return sizes;
  }

 protected:
  // What it computed, by name.
  virtual std::map<std::string, TensorRef> result_tensors(bool gradients) const {
    std::map<std::string, TensorRef> all{{"out", tensor_ref(m_out)}};
    if (!gradients) return all;
    all["grad.q"] = tensor_ref(m_dq);
    all["grad.k"] = tensor_ref(m_dk);
    all["grad.v"] = tensor_ref(m_dv);
    return all;
  }

  using memory_space = typename Exec::memory_space;
  using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
  template <class Data>
  using Array = Kokkos::View<Data, Kokkos::LayoutRight, memory_space, Unmanaged>;
  using Heads = Array<T****>;
  using Bytes = Array<std::byte*>;

  // Room for what both have.
  void reserve(Arena<memory_space>& arena) {
    const AttentionShape& s = m_task.shape;
    arena.add(m_q, s.batch, s.q_len, s.q_heads, s.head_dim);
    arena.add(m_k, s.batch, s.kv_len, s.kv_heads, s.head_dim);
    arena.add(m_v, s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
    arena.add(m_out, s.batch, s.q_len, s.q_heads, s.v_head_dim);
    if (const measure::HostArray* bias = m_task.tensor("bias")) {
      const auto& e = bias->shape;
      arena.add(m_bias, e[0], e[1], e[2], e[3]);
    }
    if (!m_task.backward) return;
    arena.add(m_dout, s.batch, s.q_len, s.q_heads, s.v_head_dim);
    arena.add(m_dq, s.batch, s.q_len, s.q_heads, s.head_dim);
    arena.add(m_dk, s.batch, s.kv_len, s.kv_heads, s.head_dim);
    arena.add(m_dv, s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
  }

  // Tensors from elsewhere, or random numbers.
  template <class V>
  void write(const V& view, const std::string& name, std::uint64_t stream, double scale) {
    if (const measure::HostArray* given = m_task.tensor(name))
      measure::upload<Exec>(*given, tensor_ref(view));
    else
      measure::fill_random(m_exec, view.data(), static_cast<std::int64_t>(view.size()),
                           measure::mix(m_task.seed) + stream, scale);
    // Rounding a sum of d products one after another is like changing one factor of each √(d/2) times as much.
    const double sums = std::sqrt(std::max(1.0, static_cast<double>(view.extent(3)) / 2));
    if (name != "bias")
      perturb(view, stream, m_task.perturbation.operands * (name == "q" || name == "grad_out" ? sums : 1));
  }

  // One of `streams` is that of a tensor.
  static constexpr std::uint64_t streams = 16;

  template <class V>
  void perturb(const V& view, std::uint64_t stream, double size) {
    if (size > 0)
      measure::perturb(m_exec, view.data(), static_cast<std::int64_t>(view.size()),
                       measure::mix(stream + streams * m_task.perturbation.number), size);
  }

  using RunOn<Exec>::m_exec;
  AttentionTask m_task;
  MemoryBlock<memory_space> m_block, m_workspace_block;
  Heads m_q, m_k, m_v, m_out, m_bias, m_dout, m_dq, m_dk, m_dv;
  Bytes m_workspace;
};

template <class Exec, class T>
class StandardAttentionRun final : public AttentionRunOn<Exec, T> {
 public:
  StandardAttentionRun(const AttentionTask& task, Ledger& ledger) : AttentionRunOn<Exec, T>(task) {
    const AttentionShape& s = task.shape;
    Arena<typename Exec::memory_space> arena, workspace;
    this->reserve(arena);
    arena.add(m_probabilities, s.batch, s.q_heads, s.q_len, s.kv_len);
    this->m_block =
        arena.allocate(this->m_exec, ledger, MemoryClass::activations, "kformer-attention::standard");
    if (!task.backward) return;
    workspace.add(this->m_workspace, standard_attention_backward_workspace_bytes<T>(
                                         this->m_exec, s.batch, s.q_heads, s.q_len, s.kv_len));
    this->m_workspace_block =
        workspace.allocate(this->m_exec, ledger, MemoryClass::workspace, "kformer-attention::workspace");
  }

  void forward() override {
    if (this->m_task.tensor("bias"))
      standard_attention_masked_forward(
          this->m_exec,
          StandardAttentionMaskedForwardOperands{.q = this->m_q,
                                                 .k = this->m_k,
                                                 .v = this->m_v,
                                                 .mask = this->m_bias,
                                                 .out = this->m_out,
                                                 .probabilities = m_probabilities},
          this->m_task.options);
    else
      standard_attention_forward(this->m_exec, this->m_q, this->m_k, this->m_v, this->m_out, m_probabilities,
                                 this->m_task.options);
  }

  void backward() override {
    standard_attention_backward(this->m_exec,
                                StandardAttentionBackwardOperands{.q = this->m_q,
                                                                  .k = this->m_k,
                                                                  .v = this->m_v,
                                                                  .probabilities = m_probabilities,
                                                                  .dout = this->m_dout,
                                                                  .dq = this->m_dq,
                                                                  .dk = this->m_dk,
                                                                  .dv = this->m_dv},
                                this->m_task.options, Workspace(this->m_workspace));
  }

 private:
  typename AttentionRunOn<Exec, T>::Heads m_probabilities;
};

template <class Exec, class T>
class FlashAttentionRun final : public AttentionRunOn<Exec, T> {
 public:
  FlashAttentionRun(const AttentionTask& task, Ledger& ledger) : AttentionRunOn<Exec, T>(task) {
    const AttentionShape& s = task.shape;
    Arena<memory_space> arena, gradients, workspace;
    this->reserve(arena);
    arena.add(m_lse, s.batch, s.q_heads, s.q_len);
    if (task.tensor("sinks")) arena.add(m_sinks, s.q_heads);
    if (task.tensor("alibi_slopes")) arena.add(m_alibi_slopes, s.q_heads);
    if (const measure::HostArray* starts = task.tensor("cu_seqlens_q")) {
      arena.add(m_cu_seqlens_q, starts->values.size());
      arena.add(m_cu_seqlens_kv, starts->values.size());
    }
    this->m_block = arena.allocate(this->m_exec, ledger, MemoryClass::activations, "kformer-attention::flash");
    if (task.backward) {
      const measure::HostArray* bias = task.tensor("bias");
      if (bias) gradients.add(m_dbias, bias->shape[0], bias->shape[1], bias->shape[2], bias->shape[3]);
      if (task.tensor("sinks")) gradients.add(m_dsinks, s.q_heads);
      m_gradients_block =
          gradients.allocate(this->m_exec, ledger, MemoryClass::gradients, "kformer-attention::gradients");
    }
    AttentionExtras<Exec> planned = extras();
    // Nothing is in them yet, and a forecast has no memory for them.
    if (task.tensor("cu_seqlens_q")) {
      const Array<std::int32_t*> none(nullptr, m_cu_seqlens_q.extent(0));
      planned.sequences(none, none);
    }
    std::size_t bytes = attention_forward_workspace_bytes(this->m_exec, s, task.options, planned);
    if (task.backward)
      bytes = std::max(
          bytes, attention_backward_workspace_bytes(this->m_exec, s, task.options, planned, extra_gradients()));
    workspace.add(this->m_workspace, bytes);
    this->m_workspace_block =
        workspace.allocate(this->m_exec, ledger, MemoryClass::workspace, "kformer-attention::workspace");
  }

  void prepare(const std::function<bool()>& stop) override {
    AttentionRunOn<Exec, T>::prepare(stop);
    const AttentionTask& task = this->m_task;
    if (const measure::HostArray* sinks = task.tensor("sinks"))
      measure::upload<Exec>(*sinks, tensor_ref(m_sinks));
    if (const measure::HostArray* slopes = task.tensor("alibi_slopes"))
      measure::upload<Exec>(*slopes, tensor_ref(m_alibi_slopes));
    if (const measure::HostArray* starts = task.tensor("cu_seqlens_q")) write_starts(*starts, m_cu_seqlens_q);
    if (const measure::HostArray* starts = task.tensor("cu_seqlens_kv")) write_starts(*starts, m_cu_seqlens_kv);
    this->fence();
  }

  void forward() override {
    attention_forward(this->m_exec, this->m_q, this->m_k, this->m_v, this->m_out, m_lse, this->m_task.options,
                      extras(), Workspace(this->m_workspace));
    this->perturb(this->m_out, 5, this->m_task.perturbation.out);
    this->perturb(m_lse, 6, this->m_task.perturbation.operands);
  }

  void backward() override {
    // The gradient of the sinks is accumulated: without this, repeated calls would add up.
    if (m_dsinks.size() > 0) Kokkos::deep_copy(this->m_exec, m_dsinks, C(0));
    attention_backward(this->m_exec,
                       AttentionBackwardOperands{.q = this->m_q,
                                                 .k = this->m_k,
                                                 .v = this->m_v,
                                                 .out = this->m_out,
                                                 .lse = m_lse,
                                                 .dout = this->m_dout,
                                                 .dq = this->m_dq,
                                                 .dk = this->m_dk,
                                                 .dv = this->m_dv},
                       this->m_task.options, extras(), extra_gradients(), Workspace(this->m_workspace));
  }

 private:
  std::map<std::string, TensorRef> result_tensors(bool gradients) const override {
    std::map<std::string, TensorRef> all = AttentionRunOn<Exec, T>::result_tensors(gradients);
    all["lse"] = tensor_ref(m_lse);
    if (m_dbias.size() > 0) all["grad.bias"] = tensor_ref(m_dbias);
    if (m_dsinks.size() > 0) all["grad.sinks"] = tensor_ref(m_dsinks);
    return all;
  }

  using C = compute_t<T>;
  using memory_space = typename Exec::memory_space;
  template <class Data>
  using Array = typename AttentionRunOn<Exec, T>::template Array<Data>;

  static void write_starts(const measure::HostArray& starts, const Array<std::int32_t*>& view) {
    const auto host = Kokkos::create_mirror_view(Kokkos::WithoutInitializing, view);
    for (std::size_t i = 0; i < starts.values.size(); ++i)
      host(i) = static_cast<std::int32_t>(starts.values[i]);
    Kokkos::deep_copy(view, host);
  }

  AttentionExtras<Exec> extras() const {
    const AttentionTask& task = this->m_task;
    AttentionExtras<Exec> all;
    if (task.tensor("bias")) all.bias(this->m_bias);
    if (task.tensor("sinks")) all.sinks(m_sinks);
    if (task.tensor("alibi_slopes")) all.alibi_slopes(m_alibi_slopes);
    if (task.tensor("cu_seqlens_q")) all.sequences(m_cu_seqlens_q, m_cu_seqlens_kv);
    return all;
  }

  AttentionExtraGradients<Exec> extra_gradients() const {
    AttentionExtraGradients<Exec> all;
    if (this->m_task.tensor("bias")) all.bias(m_dbias);
    if (this->m_task.tensor("sinks")) all.sinks(m_dsinks);
    return all;
  }

  MemoryBlock<memory_space> m_gradients_block;
  Array<C***> m_lse;
  Array<T*> m_sinks;
  Array<C*> m_alibi_slopes, m_dsinks;
  Array<T****> m_dbias;
  Array<std::int32_t*> m_cu_seqlens_q, m_cu_seqlens_kv;
};

template <class Exec>
std::unique_ptr<Run> make_attention_run_on(const AttentionTask& task, Ledger& ledger) {
  return dispatch_dtype(task.shape.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Run> {
    if (task.impl == AttentionAlgorithm::standard)
      return std::make_unique<StandardAttentionRun<Exec, T>>(task, ledger);
    return std::make_unique<FlashAttentionRun<Exec, T>>(task, ledger);
  });
}

}  // namespace kformer::drivers
