// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/core/option_checks.hpp"
#include "kformer/core/region.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/head_views.hpp"
#include "model/module_tools.hpp"

/// \file
/// Definitions of LlamaDecoder's members.

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
LlamaDecoder<Exec, T>::LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, Ledger& ledger)
    : m_config(config), m_options(options) {
  config.check_model();
  const auto positive = [](const char* name, std::int64_t value) {
    if (value <= 0)
      throw DimensionMismatch(std::string("kformer::DecoderOptions: ") + name + " must be positive, got " +
                              std::to_string(value));
  };
  Impl::check_rope_options(Operands("LlamaDecoder", {}), config.rope);
  Impl::require_enumerator("DecoderOptions", "activations", options.activations);
  Impl::require_enumerator("DecoderOptions", "compute", options.compute);
  positive("max_rows", options.max_rows);
  positive("max_logit_rows", options.max_logit_rows);
  positive("max_positions", options.max_positions);
  // Before anything is booked: a weight that a misspelt name leaves dense may be too large.
  const auto names = Impl::matrix_names(config);
  for (const auto& [name, format] : options.formats) {
    if (options.activations == Activations::int8 && !has_integer_codes(format))
      throw NotSupported("kformer::DecoderOptions: activations are int8, but " + name + " is in " +
                         to_string(format) + ", whose weights are values of a table; use Activations::full");
    if (!names.contains(name))
      throw NotSupported("kformer::DecoderOptions: formats: no matrix of the model is called " + name +
                         "; use published names, such as model.layers.0.self_attn.q_proj.weight");
  }
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) place_layer(l, ledger);
  place_ends(ledger);
  place_arrays(ledger);
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_layer(std::int64_t number, Ledger& ledger) {
  const std::int64_t hidden = m_config.hidden_size, inner = m_config.intermediate_size;
  const std::int64_t bias_size = m_config.attention_bias ? m_config.qkv_size() : 0;
  const std::int64_t head = m_config.qk_norm ? m_config.head_dim : 0;
  const std::string prefix = "model.layers." + std::to_string(number) + ".";
  const WeightFormats& formats = m_options.formats;
  Layer layer;
  MemoryLayout layout;
  const auto norm1 = layout.reserve<T>(hidden), norm2 = layout.reserve<T>(hidden),
             q_norm = layout.reserve<T>(head), k_norm = layout.reserve<T>(head),
             bias = layout.reserve<T>(bias_size);
  layer.qkv = Weight(Impl::qkv_parameters(m_config, "weight"), prefix, hidden, formats, layout);
  layer.out =
      Weight({{"self_attn.o_proj.weight", 0, hidden}}, prefix, m_config.attention_size(), formats, layout);
  layer.gate_up = Weight(Impl::gate_up_parameters(m_config), prefix, hidden, formats, layout);
  layer.down = Weight({{"mlp.down_proj.weight", 0, hidden}}, prefix, inner, formats, layout);
  layer.block = ledger.allocate<memory_space>(MemoryClass::weights, "LlamaDecoder::layer", layout.bytes());
  layer.norm1 = Impl::vector_in<T>(layer.block, norm1, hidden);
  layer.norm2 = Impl::vector_in<T>(layer.block, norm2, hidden);
  layer.q_norm = Impl::vector_in<T>(layer.block, q_norm, head);
  layer.k_norm = Impl::vector_in<T>(layer.block, k_norm, head);
  layer.bias = Impl::vector_in<T>(layer.block, bias, bias_size);
  for (Weight* weight : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down}) weight->place(layer.block);
  m_weight_bytes += layout.bytes();
  m_layers.push_back(std::move(layer));
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_ends(Ledger& ledger) {
  const std::int64_t hidden = m_config.hidden_size, vocabulary = m_config.vocab_size;
  const bool tied = m_config.tie_word_embeddings;
  MemoryLayout layout;
  m_embedding = Weight({{"model.embed_tokens.weight", 0, vocabulary}}, "", hidden, m_options.formats, layout);
  const std::size_t behind_embedding = layout.next();
  const auto norm = layout.reserve<T>(hidden);
  if (!tied) m_head = Weight({{"lm_head.weight", 0, vocabulary}}, "", hidden, m_options.formats, layout);
  m_ends_block = ledger.allocate<memory_space>(MemoryClass::weights, "LlamaDecoder::ends", layout.bytes());
  m_norm = Impl::vector_in<T>(m_ends_block, norm, hidden);
  m_embedding.place(m_ends_block);
  m_head.place(m_ends_block);
  m_weight_bytes += tied ? layout.bytes() : layout.bytes() - behind_embedding;
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_arrays(Ledger& ledger) {
  const std::int64_t half = m_config.head_dim / 2, positions = m_options.max_positions;
  Arena<memory_space> tables, arena;
  tables.add(m_cos, positions, half);
  tables.add(m_sin, positions, half);
  m_table_block = tables.allocate(ledger, MemoryClass::weights, "LlamaDecoder::rope_tables");

  const std::int64_t rows = m_options.max_rows, hidden = m_config.hidden_size, some = m_options.max_logit_rows;
  const std::int64_t normed_heads =
      m_config.qk_norm ? m_config.num_attention_heads + m_config.num_key_value_heads : 0;
  arena.add(m_rstd, std::max(rows, some));
  arena.add(m_x, rows, hidden);
  arena.add(m_normed, rows, hidden);
  // Attention, MLP and head never need their arrays at the same time.
  arena.overlap(
      [&] {
        arena.add(m_qkv, rows, m_config.qkv_size());
        arena.add(m_attention, rows, m_config.attention_size());
        arena.add(m_head_rstd, rows * normed_heads);
      },
      [&] { arena.add(m_gate_up, rows, 2 * m_config.intermediate_size); },
      [&] {
        arena.add(m_chosen, some, hidden);
        arena.add(m_logits, some, m_config.vocab_size);
      });
  m_block = arena.allocate(ledger, MemoryClass::activations, "LlamaDecoder::activations");

  const std::size_t bytes = product_workspace_bytes();
  m_workspace_block = ledger.allocate<memory_space>(MemoryClass::workspace, "LlamaDecoder::workspace", bytes);
  m_workspace = Impl::vector_in<std::byte>(m_workspace_block, 0, static_cast<std::int64_t>(bytes));
}

// The most that a product with any number of rows needs.
template <class Exec, Scalar T>
std::size_t LlamaDecoder<Exec, T>::product_workspace_bytes() const {
  std::size_t bytes = 0;
  const auto grow = [&](const Weight& weight, std::int64_t most) {
    for (std::int64_t rows = 1; rows < 2 * most; rows *= 2)
      bytes = std::max(bytes, weight.workspace_bytes(Exec(), std::min(rows, most), product_options()));
  };
  // Layers differ where a checkpoint stores them in different formats.
  for (const Layer& layer : m_layers)
    for (const Weight* weight : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
      grow(*weight, m_options.max_rows);
  grow(head(), m_options.max_logit_rows);
  return bytes;
}

template <class Exec, Scalar T>
std::vector<WeightSlot> LlamaDecoder<Exec, T>::weights() const {
  m_guard.require("LlamaDecoder", "weights");
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
  return all;
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
  m_guard.require("LlamaDecoder", "prepare");
  rope_tables(exec, m_cos, m_sin, m_config.rope);
  m_prepared = true;
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::step(const Exec& exec, const Integers& ids, const Integers& positions,
                                 KvCache<Exec, T>& cache) {
  m_guard.require("LlamaDecoder", "step");
  if (!m_prepared)
    throw NotSupported(
        "kformer::LlamaDecoder::step: the rotary tables are empty; call prepare(exec) once, before the first "
        "step");
  require_rows("step", ids.extent(0), m_options.max_rows);
  const std::size_t rows = ids.extent(0);
  Impl::require_view("LlamaDecoder::step", "positions", positions, {static_cast<std::int64_t>(rows)});
  if (m_options.batch_invariant) require_invariant(cache.options().kind);
  m_step_rows = -1;
  const Matrix x = Impl::first_rows(m_x, rows), normed = Impl::first_rows(m_normed, rows),
               qkv = Impl::first_rows(m_qkv, rows), attended = Impl::first_rows(m_attention, rows);
  const std::int64_t q_heads = m_config.num_attention_heads, kv_heads = m_config.num_key_value_heads;
  const auto heads = [&](const Matrix& from, std::int64_t first, std::int64_t count) {
    return Impl::heads_of_rows(from, first, count, m_config.head_dim);
  };
  {
    Region region("embedding");
    const auto& table = m_embedding.pieces()[0];
    if (table.format)
      quantized_embedding_forward(exec, ids, table.quantized, x);
    else
      embedding_forward(exec, ids, table.dense, x);
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
      project(exec, layer, normed, qkv);
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
      layer.out.residual_forward(exec, attended, x, x, product_options(), m_workspace);
    }
    feed_forward(exec, layer, x, normed);
  }
  m_step_rows = static_cast<std::int64_t>(rows);
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::project(const Exec& exec, const Layer& layer, const Matrix& normed,
                                    const Matrix& qkv) {
  if (!m_config.attention_bias) {
    layer.qkv.forward(exec, normed, qkv, product_options(), m_workspace);
    return;
  }
  if (layer.qkv.is_dense()) {
    linear_bias_forward(exec, normed, layer.qkv.dense(), layer.bias, qkv,
                        {.batch_invariant = m_options.batch_invariant}, m_workspace);
    return;
  }
  // The bias is a residual that is the same for all rows.
  const Matrix bias(layer.bias.data(), Kokkos::LayoutStride(qkv.extent(0), 0, qkv.extent(1), 1));
  layer.qkv.residual_forward(exec, normed, bias, qkv, product_options(), m_workspace);
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
    if (layer.gate_up.is_dense()) {
      linear_swiglu_forward(exec, normed, layer.gate_up.dense(), gate_up, product,
                            {.batch_invariant = m_options.batch_invariant}, m_workspace);
    } else {
      layer.gate_up.forward(exec, normed, gate_up, product_options(), m_workspace);
      swiglu_forward(exec, product, Impl::up_half(gate_up), product);
    }
  }
  Region region("down");
  layer.down.residual_forward(exec, product, x, x, product_options(), m_workspace);
}

template <class Exec, Scalar T>
typename LlamaDecoder<Exec, T>::Matrix LlamaDecoder<Exec, T>::logits(const Exec& exec, const Integers& rows) {
  m_guard.require("LlamaDecoder", "logits");
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
  head().forward(exec, chosen, logits, product_options(), m_workspace);
  return logits;
}

}  // namespace kformer
