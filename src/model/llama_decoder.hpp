// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/region.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/decoder_map.hpp"
#include "model/llama_decoder_memory.hpp"
#include "model/tensor/slices.hpp"
#include "model/tensor/vocabulary_ranks.hpp"
#include "model/tools/head_views.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of LlamaDecoder's members that compute.

namespace kformer {

namespace Impl {

template <class Space, class U>
BlockMatrix<Space, U> first_rows(const BlockMatrix<Space, U>& from, std::size_t rows) {
  return Kokkos::subview(from, std::pair<std::size_t, std::size_t>(0, rows), Kokkos::ALL);
}

template <class V>
auto first_elements(const V& from, std::size_t count) {
  return Kokkos::subview(from, std::pair<std::size_t, std::size_t>(0, count));
}

}  // namespace Impl

template <class Exec, Scalar T>
std::vector<WeightSlot> LlamaDecoder<Exec, T>::weights() const {
  require_memory("weights");
  std::vector<WeightSlot> all;
  const auto vector = [&](const std::string& name, const auto& view, std::int64_t first, std::int64_t count) {
    all.push_back({name, Impl::rows_of(tensor_ref(view), first, count), {}});
  };
  const auto matrix = [&](const Weight& weight) {
    for (WeightSlot& slot : weight.slots()) all.push_back(std::move(slot));
  };
  matrix(m_embedding);
  for (std::size_t l = 0; l < m_layers.size(); ++l) {
    const Layer& layer = m_layers[l];
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    vector(prefix + "input_layernorm.weight", layer.norm1, 0, m_config.hidden_size);
    matrix(layer.qkv);
    if (m_config.attention_bias)
      for (const auto& [name, first, count] : Impl::qkv_parameters(m_config, "bias"))
        vector(prefix + name, layer.bias, first, count);
    if (m_config.qk_norm) {
      vector(prefix + "self_attn.q_norm.weight", layer.q_norm, 0, m_config.head_dim);
      vector(prefix + "self_attn.k_norm.weight", layer.k_norm, 0, m_config.head_dim);
    }
    matrix(layer.out);
    vector(prefix + "post_attention_layernorm.weight", layer.norm2, 0, m_config.hidden_size);
    matrix(layer.gate_up);
    matrix(layer.down);
  }
  vector("model.norm.weight", m_norm, 0, m_config.hidden_size);
  if (!m_config.tie_word_embeddings) matrix(m_head);
  if (m_tensor) Impl::mark_slices(m_tensor->communicator(), m_words, all);
  return all;
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::require_memory(const char* function) const {
  m_guard.require("LlamaDecoder", function);
  if (m_borrows && m_owner.expired())
    throw NotSupported(std::string("kformer::LlamaDecoder::") + function +
                       ": the model whose weights the decoder borrows does not exist any more; keep it as long "
                       "as the decoder is used");
}

template <class Exec, Scalar T>
std::vector<Parameter> LlamaDecoder<Exec, T>::adapters(std::int64_t adapter) const {
  require_memory("adapters");
  if (adapter < 0 || adapter >= std::ssize(m_options.adapters))
    throw NotSupported("kformer::LlamaDecoder::adapters: there is no adapter " + std::to_string(adapter) +
                       " among the " + std::to_string(m_options.adapters.size()) + " of the decoder");
  const auto k = static_cast<std::size_t>(adapter);
  std::vector<Parameter> all;
  std::string prefix;
  const auto add = [&](const Layer& layer, Fused which, const auto& matrices) {
    const auto first = Impl::first_projection(which);
    std::int64_t row = 0;
    for (std::size_t i = 0; i < matrices.parts.size(); ++i) {
      const auto p = static_cast<Projection>(static_cast<std::size_t>(first) + i);
      const std::int64_t before = m_ranks.before(p, k), rank = m_options.adapters[k][p].rank;
      const std::string name = prefix + Impl::module_of(p);
      if (rank > 0) {
        all.push_back({name + ".lora_A.weight", Impl::rows_of(tensor_ref(matrices.a), row + before, rank), {}});
        all.push_back(
            {name + ".lora_B.weight", Impl::columns_of(tensor_ref(matrices.parts[i].b), before, rank), {}});
      }
      if (rank > 0 && m_options.adapters[k].magnitudes) {
        const auto& part = matrices.parts[i];
        const auto own = m_ranks.scaled_of(which, k) * Impl::fused_rows(m_config, which);
        const auto& magnitude = layer.gains[static_cast<std::size_t>(which)].magnitude;
        all.push_back({name + ".lora_magnitude_vector",
                       Impl::rows_of(tensor_ref(magnitude), own + part.column,
                                     static_cast<std::int64_t>(part.b.extent(0))),
                       {}});
      }
      row += m_ranks.before(p, m_ranks.adapters());
    }
  };
  for (std::size_t l = 0; l < m_layers.size(); ++l) {
    prefix = "model.layers." + std::to_string(l) + ".";
    add(m_layers[l], Fused::qkv, m_layers[l].adapter.qkv);
    add(m_layers[l], Fused::out, m_layers[l].adapter.out);
    add(m_layers[l], Fused::gate_up, m_layers[l].adapter.gate_up);
    add(m_layers[l], Fused::down, m_layers[l].adapter.down);
  }
  if (m_tensor) Impl::mark_adapter_slices(m_tensor->communicator(), all);
  return all;
}

template <class Exec, Scalar T>
BlockVector<typename Exec::memory_space, std::int32_t> LlamaDecoder<Exec, T>::scaled_of(Fused which) const {
  if (m_scaled_of.extent(0) == 0) return {};
  const std::size_t adapters = m_ranks.adapters(), first = static_cast<std::size_t>(which) * adapters;
  return Kokkos::subview(m_scaled_of, std::pair(first, first + adapters));
}

template <class Exec, Scalar T>
template <std::size_t count>
typename LlamaDecoder<Exec, T>::template Map<count> LlamaDecoder<Exec, T>::map(
    const Layer& layer, Fused which, const Weight& weight,
    const AdapterMatrices<memory_space, T, count>& adapter, std::size_t rows) const {
  const auto first = static_cast<std::size_t>(m_ranks.first(which)),
             ranks = static_cast<std::size_t>(m_ranks.count(which));
  const Matrix xa(m_xa.data(), Kokkos::LayoutStride(rows, ranks, ranks, 1));
  return {weight,
          adapter,
          xa,
          m_ranks.scales(which),
          Kokkos::subview(m_of, std::pair(first, first + ranks)),
          m_chosen_adapters,
          static_cast<std::int32_t>(m_ranks.adapters()),
          layer.gains[static_cast<std::size_t>(which)].gain,
          scaled_of(which),
          product_options(),
          m_workspace};
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::require_rows(const char* function, std::size_t rows, std::int64_t most) const {
  if (rows > static_cast<std::size_t>(most))
    throw DimensionMismatch(std::string("kformer::LlamaDecoder::") + function + ": " + std::to_string(rows) +
                            " rows, the decoder was made for at most " + std::to_string(most));
}

// Other caches drop or round what a query of the model sees, or count its keys from another place.
template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::require_invariant(KvCacheKind kind) {
  if (kind != KvCacheKind::contiguous && kind != KvCacheKind::paged)
    throw NotSupported(
        "kformer::LlamaDecoder::step: a cache of kind " + std::string(name_of(kind)) +
        " is not batch-invariant, but DecoderOptions::batch_invariant was requested; choose contiguous "
        "or paged");
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::prepare(const Exec& exec) {
  require_memory("prepare");
  rope_tables(exec, m_cos, m_sin, m_config.rope);
  const auto upload = [&](const auto& to, const std::vector<std::int32_t>& from) {
    if (!from.empty())
      transfer<memory_space, Kokkos::HostSpace>(exec, *m_ledger, to.data(), from.data(),
                                                from.size() * sizeof(std::int32_t));
  };
  upload(m_of, m_ranks.of());
  upload(m_scaled_of, m_ranks.scaled_of());
  update_gains(exec);
  m_prepared = true;
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::update_gains(const Exec& exec) {
  require_memory("update_gains");
  if (m_ranks.scaled_of().empty()) return;
  Region region("gains");
  for (const Layer& layer : m_layers) {
    update_gains(exec, layer, Fused::qkv, layer.qkv, layer.adapter.qkv);
    update_gains(exec, layer, Fused::out, layer.out, layer.adapter.out);
    update_gains(exec, layer, Fused::gate_up, layer.gate_up, layer.adapter.gate_up);
    update_gains(exec, layer, Fused::down, layer.down, layer.adapter.down);
  }
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::measure_rows(const Exec& exec, const WeightSlot& weight, const Matrix& b,
                                         const Matrix& a, double scale,
                                         const BlockVector<memory_space, C>& norm) {
  const char* label = "kformer::LlamaDecoder::norms_of_rows";
  if (weight.is_quantized()) return Impl::quantized_row_norms(label, exec, weight.quantized, b, a, scale, norm);
  const auto rows = static_cast<std::size_t>(weight.dense.extent[0]),
             columns = static_cast<std::size_t>(weight.dense.extent[1]);
  const Matrix w(static_cast<T*>(weight.dense.data), Kokkos::LayoutStride(rows, columns, columns, 1));
  Impl::row_norms(label, exec, w, b, a, scale, norm);
}

// Of each adapter with magnitudes for the rows of a weight; 1 for the rows of projections that it leaves alone.
template <class Exec, Scalar T>
template <std::size_t count>
void LlamaDecoder<Exec, T>::update_gains(const Exec& exec, const Layer& layer, Fused which,
                                         const Weight& weight,
                                         const AdapterMatrices<memory_space, T, count>& adapter) {
  const auto& [magnitude, gain] = layer.gains[static_cast<std::size_t>(which)];
  if (gain.extent(0) == 0) return;
  const auto out = static_cast<std::size_t>(Impl::fused_rows(m_config, which));
  Kokkos::deep_copy(exec, gain, C(1));
  const auto slots = weight.slots();
  const auto first = static_cast<std::size_t>(Impl::first_projection(which));
  std::int64_t row = 0;  // of A
  for (std::size_t i = 0; i < count; ++i) {
    const auto p = static_cast<Projection>(first + i);
    const auto [begin, end] = Impl::columns_of(adapter.parts[i]);
    for (std::size_t k = 0; k < m_ranks.adapters(); ++k) {
      const std::int64_t rank = m_options.adapters[k][p].rank, before = m_ranks.before(p, k);
      if (rank == 0 || !m_options.adapters[k].magnitudes) continue;
      const std::size_t own = static_cast<std::size_t>(m_ranks.scaled_of(which, k)) * out;
      const std::pair rows(own + begin, own + end);
      const Matrix b = Kokkos::subview(adapter.parts[i].b, Kokkos::ALL, std::pair(before, before + rank)),
                   a = Kokkos::subview(adapter.a, std::pair(row + before, row + before + rank), Kokkos::ALL);
      const auto gains = Kokkos::subview(gain, rows);
      measure_rows(exec, slots[i], b, a, m_options.adapters[k].scale(p), gains);
      if (m_tensor && Impl::divided_axis(slots[i].name) == 1) Impl::join_norms(exec, *m_tensor, gains);
      Impl::row_gains("kformer::LlamaDecoder::gains", exec, Kokkos::subview(magnitude, rows), gains, gains);
    }
    row += m_ranks.before(p, m_ranks.adapters());
  }
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::step(const Exec& exec, const Integers& ids, const Integers& positions,
                                 KvCache<Exec, T>& cache, const Integers& adapters) {
  require_memory("step");
  if (!m_prepared)
    throw NotSupported(
        "kformer::LlamaDecoder::step: the rotary tables are empty; call prepare(exec) once, before the first "
        "step");
  require_rows("step", ids.extent(0), m_options.max_rows);
  const std::size_t rows = ids.extent(0);
  Impl::require_view("LlamaDecoder::step", "positions", positions, {static_cast<std::int64_t>(rows)});
  if (m_options.batch_invariant) require_invariant(cache.options().kind);
  if (adapters.extent(0) > 0)
    Impl::require_view("LlamaDecoder::step", "adapters", adapters, {static_cast<std::int64_t>(rows)});
  else if (rows > 0 && m_ranks.adapters() > 1)
    throw NotSupported("kformer::LlamaDecoder::step: there are " + std::to_string(m_ranks.adapters()) +
                       " adapters; say which of them each token has, or -1");
  m_chosen_adapters = adapters;
  m_step_rows = -1;
  const Matrix x = Impl::first_rows(m_x, rows), normed = Impl::first_rows(m_normed, rows),
               qkv = Impl::first_rows(m_qkv, rows), attended = Impl::first_rows(m_attention, rows);
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  const auto heads = [&](const Matrix& from, std::int64_t first, std::int64_t count) {
    return Impl::heads_of_rows(from, first, count, m_config.head_dim);
  };
  {
    Region region("embedding");
    embed(exec, ids, x);
  }
  for (std::size_t l = 0; l < m_layers.size(); ++l) {
    const Layer& layer = m_layers[l];
    {
      Region region("attention_norm");
      rms_norm_forward(exec, x, layer.norm1, normed, Impl::first_elements(m_rstd, rows),
                       {.eps = m_config.rms_norm_eps});
    }
    {
      Region region("qkv");
      map(layer, Fused::qkv, layer.qkv, layer.adapter.qkv, rows).forward(exec, normed, layer.bias, qkv);
    }
    {
      Region region("rope");
      rotate(exec, layer, qkv, positions);
    }
    {
      Region region("attention");
      cache.attend(exec, static_cast<std::int64_t>(l), heads(qkv, 0, q_heads), heads(qkv, q_heads, kv_heads),
                   heads(qkv, q_heads + kv_heads, kv_heads), heads(attended, 0, q_heads),
                   {.causal = true,
                    .window = m_config.sliding_window,
                    .compute = m_options.compute,
                    .batch_invariant = m_options.batch_invariant});
    }
    {
      Region region("out_projection");
      add_product(exec, map(layer, Fused::out, layer.out, layer.adapter.out, rows), attended, x, normed);
    }
    feed_forward(exec, layer, x, normed);
  }
  m_step_rows = static_cast<std::int64_t>(rows);
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::embed(const Exec& exec, const Integers& ids, const Matrix& x) {
  const auto& table = m_embedding.pieces()[0];
  const auto look_up = [&](const Integers& words) {
    if (table.format)
      quantized_embedding_forward(exec, words, table.quantized, x);
    else
      embedding_forward(exec, words, table.dense, x);
  };
  if (!m_tensor) return look_up(ids);
  Impl::embed_divided<T>(exec, m_words, ids, Impl::first_elements(m_local, ids.extent(0)), x, look_up);
  m_tensor->all_reduce(exec, x, "embedding");
}

// x += from Wᵀ, summed over the ranks that divide the columns of W. The first adds x.
template <class Exec, Scalar T>
template <class M>
void LlamaDecoder<Exec, T>::add_product(const Exec& exec, const M& map, const Matrix& from, const Matrix& x,
                                        const Matrix& spare) {
  if (m_tensor && m_tensor->communicator().rank() > 0)
    map.forward(exec, from, BlockVector<memory_space, T>(), x);
  else
    map.residual_forward(exec, from, x, spare);
  if (m_tensor) m_tensor->all_reduce(exec, x, "activations");
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::rotate(const Exec& exec, const Layer& layer, const Matrix& qkv,
                                   const Integers& positions) {
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  const std::size_t rows = qkv.extent(0);
  if (m_config.qk_norm) {
    using Statistics =
        Kokkos::View<C**, Kokkos::LayoutRight, memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    const auto q = Impl::heads_of_rows(qkv, 0, q_heads, m_config.head_dim),
               k = Impl::heads_of_rows(qkv, q_heads, kv_heads, m_config.head_dim);
    const Statistics q_rstd(m_head_rstd.data(), rows, q.extent(1));
    const Statistics k_rstd(m_head_rstd.data() + q_rstd.size(), rows, k.extent(1));
    qk_norm_forward(exec,
                    QkNormForwardOperands{.q = q,
                                          .k = k,
                                          .q_weight = layer.q_norm,
                                          .k_weight = layer.k_norm,
                                          .q_out = q,
                                          .k_out = k,
                                          .q_rstd = q_rstd,
                                          .k_rstd = k_rstd},
                    {.eps = m_config.rms_norm_eps});
  }
  // All tokens as one sequence, each with a position of its own.
  const Kokkos::View<const std::int32_t**, Kokkos::LayoutStride, memory_space,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      places(positions.data(), Kokkos::LayoutStride(1, rows, rows, positions.stride(0)));
  const auto sequence = [&](std::int64_t first, std::int64_t count) {
    return Impl::heads_of_sequences(qkv, 1, first, count, m_config.head_dim);
  };
  rope_forward(exec, sequence(0, q_heads), sequence(q_heads, kv_heads), m_cos, m_sin, places,
               m_config.rope.layout);
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::feed_forward(const Exec& exec, const Layer& layer, const Matrix& x,
                                         const Matrix& normed) {
  const Matrix gate_up = Impl::first_rows(m_gate_up, x.extent(0));
  const Matrix product = Impl::gate_half(gate_up);
  {
    Region region("mlp_norm");
    rms_norm_forward(exec, x, layer.norm2, normed, Impl::first_elements(m_rstd, x.extent(0)),
                     {.eps = m_config.rms_norm_eps});
  }
  {
    Region region("gate_up");
    const auto gate_up_map = map(layer, Fused::gate_up, layer.gate_up, layer.adapter.gate_up, x.extent(0));
    if (layer.gate_up.is_dense() && !gate_up_map.adapted()) {
      linear_swiglu_forward(exec, normed, layer.gate_up.dense(), gate_up, product,
                            {.batch_invariant = m_options.batch_invariant}, m_workspace);
    } else {
      gate_up_map.forward(exec, normed, BlockVector<memory_space, T>(), gate_up);
      swiglu_forward(exec, product, Impl::up_half(gate_up), product);
    }
  }
  Region region("down");
  add_product(exec, map(layer, Fused::down, layer.down, layer.adapter.down, x.extent(0)), product, x, normed);
}

template <class Exec, Scalar T>
typename LlamaDecoder<Exec, T>::Matrix LlamaDecoder<Exec, T>::logits(const Exec& exec, const Integers& rows) {
  require_memory("logits");
  if (m_step_rows < 0)
    throw NotSupported("kformer::LlamaDecoder::logits: there are no hidden states; call step first");
  require_rows("logits", rows.extent(0), m_options.max_logit_rows);
  Region region("head");
  const std::size_t count = rows.extent(0);
  const Matrix chosen = Impl::first_rows(m_chosen, count), logits = Impl::first_rows(m_logits, count);
  // Rows behind those of the step, which may hold another one's, become NaN.
  embedding_forward(exec, rows, Impl::first_rows(m_x, static_cast<std::size_t>(m_step_rows)), chosen);
  rms_norm_forward(exec, chosen, m_norm, chosen, Impl::first_elements(m_rstd, count),
                   {.eps = m_config.rms_norm_eps});
  if (!m_tensor) {
    head().forward(exec, chosen, logits, product_options(), m_workspace);
    return logits;
  }
  const Impl::LogitParts<Exec, T> parts(m_words, count, m_tensor->communicator(), m_logit_parts);
  head().forward(exec, chosen, parts.own(), product_options(), m_workspace);
  parts.gather(exec, *m_tensor, logits);
  return logits;
}

}  // namespace kformer
