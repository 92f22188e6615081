// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/llama_decoder.hpp"
#include "kformer/model/llama_model.hpp"
#include "model/tensor/logit_parts.hpp"
#include "model/tensor/slices.hpp"

/// \file
/// Definitions of LlamaDecoder's members that book memory and say where arrays are.

namespace kformer {

template <class Exec, Scalar T>
LlamaDecoder<Exec, T>::LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, Ledger& ledger)
    : m_config(config), m_options(options) {
  check_options();
  m_ranks = Impl::DecoderRanks(options.adapters);
  divide(ledger);
  for (std::int64_t l = 0; l < config.num_hidden_layers; ++l) place_layer(l, ledger);
  place_ends(ledger);
  place_arrays(ledger);
}

template <class Exec, Scalar T>
LlamaDecoder<Exec, T>::LlamaDecoder(const LlamaModel<Exec, T>& model, const DecoderOptions& options,
                                    Ledger& ledger)
    : m_config(model.m_config), m_options(options), m_owner(model.m_memory), m_borrows(true) {
  if (model.tensor_ranks())
    throw NotSupported(
        "kformer::LlamaDecoder: ranks divide the model (tensor); a decoder borrows whole ones alone");
  const auto refuse = [](const char* sentence) {
    throw NotSupported(std::string("kformer::LlamaDecoder: the model ") + sentence);
  };
  if (!model.has_embedding() || !model.has_head())
    refuse("is a part of one; a decoder borrows whole ones alone");
  if (!model.m_memory) refuse("was moved from and has no memory; use the one it was moved to");
  if (!model.m_options.causal)
    refuse("sees later tokens, which a decoder does not have; make it with LayerOptions::causal");
  if (Impl::divides(options.tensor))
    refuse("is not divided among ranks, and a decoder borrows it as it is; leave out `tensor`");
  if (!options.formats.empty() || !options.adapters.empty())
    refuse("has weights and adapters, which the decoder borrows; give neither formats nor adapters");
  if (model.adapts()) m_options.adapters = {model.m_options.lora};
  check_options();
  m_ranks = Impl::DecoderRanks(m_options.adapters);
  borrow(model);
  for (Layer& layer : m_layers) place_gains(layer, ledger);
  place_arrays(ledger);
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::check_options() const {
  m_config.check_model();
  const auto positive = [](const char* name, std::int64_t value) {
    if (value <= 0)
      throw DimensionMismatch(std::string("kformer::DecoderOptions: ") + name + " must be positive, got " +
                              std::to_string(value));
  };
  Impl::check_rope_options(Operands("LlamaDecoder", {}), m_config.rope);
  Impl::require_enumerator("DecoderOptions", "activations", m_options.activations);
  Impl::require_enumerator("DecoderOptions", "compute", m_options.compute);
  positive("max_rows", m_options.max_rows);
  positive("max_logit_rows", m_options.max_logit_rows);
  positive("max_positions", m_options.max_positions);
  // Before anything is booked: a weight that a misspelt name leaves dense may be too large.
  const auto names = Impl::matrix_names(m_config);
  for (const auto& [name, format] : m_options.formats) {
    if (m_options.activations == Activations::int8 && !has_integer_codes(format))
      throw NotSupported("kformer::DecoderOptions: activations are int8, but " + name + " is in " +
                         to_string(format) + ", whose weights are values of a table; use Activations::full");
    if (!names.contains(name))
      throw NotSupported("kformer::DecoderOptions: formats: no matrix of the model is called " + name +
                         "; use published names, such as model.layers.0.self_attn.q_proj.weight");
  }
  for (std::size_t k = 0; k < m_options.adapters.size(); ++k) {
    if (!m_options.adapters[k].any())
      throw NotSupported("kformer::DecoderOptions: adapter " + std::to_string(k) +
                         " has no projection; tokens without an adapter have the number -1");
  }
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::divide(Ledger& ledger) {
  m_words = {m_config.vocab_size, m_options.tensor};
  if (!Impl::divides(m_options.tensor)) return;
  Impl::on_behalf_of("LlamaDecoder", [&] {
    Impl::require_words(m_config, m_options.tensor);
    m_config = Impl::slice_of(m_config, m_options.tensor);
    Impl::require_whole_blocks(m_config, m_options.formats);
  });
  for (const auto& [name, format] : m_options.formats)
    if (m_options.activations == Activations::int8 && is_ternary(format) && Impl::divided_axis(name) == 1)
      throw NotSupported("kformer::LlamaDecoder: activations are int8, but " + name + " is in " +
                         to_string(format) +
                         ", for which each row of them has one scale, which ranks (tensor) would divide; use "
                         "Activations::full");
  m_tensor.emplace(m_options.tensor, CollectivesOptions{}, ledger);
}

// The arrays of a model, which keep their places until it ends, even if it is moved.
template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::borrow(const LlamaModel<Exec, T>& model) {
  const std::int64_t hidden = m_config.hidden_size, vocabulary = m_config.vocab_size;
  for (std::size_t l = 0; l < model.m_layers.size(); ++l) {
    const auto& weight = model.m_layers[l].m_weight;
    const auto& adapter = model.m_layers[l].m_adapter;
    const std::string prefix = "model.layers." + std::to_string(l) + ".";
    Layer layer;
    layer.norm1 = weight.norm1;
    layer.norm2 = weight.norm2;
    layer.q_norm = weight.q_norm;
    layer.k_norm = weight.k_norm;
    layer.bias = weight.bias;
    const auto lent = [&](std::vector<Impl::ParameterRows> parts, const Matrix& whole, const auto& split) {
      return split.empty() ? Weight(std::move(parts), prefix, whole) : Weight(std::move(parts), prefix, split);
    };
    layer.qkv = lent(Impl::qkv_parameters(m_config, "weight"), weight.qkv, weight.qkv_split);
    layer.out = lent({{"self_attn.o_proj.weight", 0, hidden}}, weight.out, weight.out_split);
    layer.gate_up = lent(Impl::gate_up_parameters(m_config), weight.gate_up, weight.gate_up_split);
    layer.down = lent({{"mlp.down_proj.weight", 0, hidden}}, weight.down, weight.down_split);
    layer.adapter.qkv = adapter.qkv;
    layer.adapter.out = adapter.out;
    layer.adapter.gate_up = adapter.gate_up;
    layer.adapter.down = adapter.down;
    layer.gains[static_cast<std::size_t>(Fused::qkv)].magnitude = adapter.qkv.magnitude;
    layer.gains[static_cast<std::size_t>(Fused::out)].magnitude = adapter.out.magnitude;
    layer.gains[static_cast<std::size_t>(Fused::gate_up)].magnitude = adapter.gate_up.magnitude;
    layer.gains[static_cast<std::size_t>(Fused::down)].magnitude = adapter.down.magnitude;
    m_weight_bytes += weight.bytes + adapter.block.bytes();
    m_layers.push_back(std::move(layer));
  }
  const auto& ends = model.m_weight;
  m_norm = ends.norm;
  m_embedding = Weight({{"model.embed_tokens.weight", 0, vocabulary}}, "", ends.embedding);
  if (!m_config.tie_word_embeddings) m_head = Weight({{"lm_head.weight", 0, vocabulary}}, "", ends.head);
  m_weight_bytes += static_cast<std::size_t>(hidden * (vocabulary + 1)) * sizeof(T);
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
  if (m_ranks.adapters() > 0) {
    layer.adapter = {m_config, m_ranks.wide(), ledger, MemoryClass::weights};
    m_weight_bytes += layer.adapter.block.bytes();
  }
  place_magnitudes(layer, ledger);
  place_gains(layer, ledger);
  m_layers.push_back(std::move(layer));
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_magnitudes(Layer& layer, Ledger& ledger) {
  if (m_ranks.scaled_of().empty()) return;
  Arena<memory_space> arena;
  for (const Fused which : Impl::fused_weights)
    arena.add(layer.gains[static_cast<std::size_t>(which)].magnitude,
              m_ranks.scaled(which) * Impl::fused_rows(m_config, which));
  layer.magnitude_block = arena.allocate(ledger, MemoryClass::weights, "LlamaDecoder::magnitudes");
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_gains(Layer& layer, Ledger& ledger) {
  if (m_ranks.scaled_of().empty()) return;
  Arena<memory_space> arena;
  for (const Fused which : Impl::fused_weights)
    arena.add(layer.gains[static_cast<std::size_t>(which)].gain,
              m_ranks.scaled(which) * Impl::fused_rows(m_config, which));
  layer.gain_block = arena.allocate(ledger, MemoryClass::activations, "LlamaDecoder::gains");
  m_weight_bytes += layer.gain_block.bytes();
}

template <class Exec, Scalar T>
void LlamaDecoder<Exec, T>::place_ends(Ledger& ledger) {
  const std::int64_t hidden = m_config.hidden_size, vocabulary = m_words.size();
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
  m_ledger = ledger.shared_from_this();
  Arena<memory_space> tables, arena;
  tables.add(m_cos, positions, half);
  tables.add(m_sin, positions, half);
  m_table_block = tables.allocate(ledger, MemoryClass::weights, "LlamaDecoder::rope_tables");

  const std::int64_t rows = m_options.max_rows, hidden = m_config.hidden_size, some = m_options.max_logit_rows;
  const std::int64_t rank = std::max({m_ranks.count(Fused::qkv), m_ranks.count(Fused::out),
                                      m_ranks.count(Fused::gate_up), m_ranks.count(Fused::down)});
  const std::int64_t normed_heads =
      m_config.qk_norm ? m_config.num_attention_heads + m_config.num_key_value_heads : 0;
  arena.add(m_rstd, std::max(rows, some));
  arena.add(m_x, rows, hidden);
  arena.add(m_normed, rows, hidden);
  arena.add(m_xa, rows * rank);
  arena.add(m_of, std::ssize(m_ranks.of()));
  arena.add(m_scaled_of, std::ssize(m_ranks.scaled_of()));
  arena.add(m_local, m_tensor ? rows : 0);
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
        arena.add(m_logit_parts, m_tensor ? Impl::LogitParts<Exec, T>::elements(some, m_config.vocab_size,
                                                                                m_options.tensor->size())
                                          : 0);
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

}  // namespace kformer
