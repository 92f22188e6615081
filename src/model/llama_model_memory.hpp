// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/arena.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "model/layer_options.hpp"
#include "model/llama_model_parts.hpp"
#include "model/tensor/slices.hpp"
#include "model/tensor/vocabulary_ranks.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of LlamaModel's members that book memory and say where arrays are.

namespace kformer {

template <class Exec, Scalar T>
LlamaModel<Exec, T>::LlamaModel(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                Ledger& ledger)
    : LlamaModel(config, shape, options, ledger,
                 RecomputeSchedule::uniform(options.recompute, config.num_hidden_layers)) {}

template <class Exec, Scalar T>
LlamaModel<Exec, T>::LlamaModel(const LlamaConfig& config, LayerShape shape, const LayerOptions& options,
                                Ledger& ledger, const RecomputeSchedule& schedule, ModelPart part)
    : m_config(config),
      m_part(Impl::checked_part(config, part)),
      m_shape(shape),
      m_seq_len(shape.seq_len),
      m_chunk_rows(
          Impl::LogitChunks(dtype_of<T>, shape.rows(), config.vocab_size, {}, Impl::most_chosen_rows<Exec>)
              .rows),
      m_options(options),
      m_schedule(schedule) {
  Impl::require_not_negative("LlamaModel", {{"batch", shape.batch}, {"seq_len", shape.seq_len}});
  check_schedule();
  Impl::require_words(config, options.tensor);
  Impl::on_behalf_of("LlamaModel", [&] { add_layers(ledger); });
  m_vocabulary = {config.vocab_size, shape.rows(), tensor_ranks(), divides_states() ? config.hidden_size : 0,
                  ledger};
  place_ends(ledger, MemoryClass::weights, m_weight);
  if (trains_ends()) place_ends(ledger, MemoryClass::gradients, m_gradient);
  if (trains_ends() && ends_take_turns()) m_gradient.head = m_gradient.embedding;
  place_activations(ledger);
  place_workspace(ledger);
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::check_schedule() const {
  m_schedule.check("LlamaModel");
  const auto layers = m_schedule.layers();
  if (const std::int64_t expected = m_part.end - m_part.begin; layers != expected)
    throw DimensionMismatch(
        "kformer::LlamaModel: the recomputation schedule is for " + std::to_string(layers) +
        " layers, expected " + std::to_string(expected) +
        (expected == m_config.num_hidden_layers ? " (num_hidden_layers)" : " of this part"));
  if (m_options.split_backward && m_schedule.nested_layers > 0)
    throw NotSupported(
        "kformer::LlamaModel: split_backward needs the input of every layer; choose a schedule without "
        "nested layers");
  for (const Recompute kind : m_schedule.kinds) {
    Impl::require_enumerator("LlamaModel", "recompute", kind);
    if (kind == Recompute::offload && !Impl::hosts_may_offload && Impl::host_reaches<memory_space>)
      throw NotSupported(std::string("kformer::LlamaModel: recompute = offload moves inputs of layers to host "
                                     "memory, but ") +
                         Exec::name() + " computes there already; choose layer or nested");
    if (kind == Recompute::nested || kind == Recompute::automatic)
      throw NotSupported(
          "kformer::LlamaModel: a layer of a recomputation schedule keeps none, pointwise, layer "
          "or offload, not " +
          std::string(name_of(kind)));
    if (kind == Recompute::offload && (m_options.slots > 1 || m_options.split_backward))
      throw NotSupported(
          "kformer::LlamaModel: recompute = offload has the inputs of one micro-batch in host memory, "
          "without slots or split_backward; choose layer");
  }
}

// Before anything is booked: a weight that a misspelt name leaves dense may be too large.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::check_formats() const {
  const WeightFormats known = formats_of_projections(m_options.formats, m_config.num_hidden_layers);
  for (const auto& [name, format] : m_options.formats) {
    if (!adapts())
      throw NotSupported(
          "kformer::LlamaModel: formats: " + name + " stays quantised (" + to_string(format) +
          "), but quantised weights do not learn and there are no adapters; set `lora`, or expand the "
          "weights; LlamaDecoder generates with quantised ones");
    if (!known.contains(name))
      throw NotSupported(
          "kformer::LlamaModel: formats: '" + name +
          "' is no projection of a layer, whose weights alone stay quantised in training; use published "
          "names, such as model.layers.0.self_attn.q_proj.weight");
  }
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::add_layers(Ledger& ledger) {
  LayerOptions options = m_options;
  check_formats();
  std::vector<Recompute> kinds(static_cast<std::size_t>(m_schedule.nested_layers), Recompute::layer);
  std::int64_t offloaded = 0;
  for (std::int64_t l = 0; l < m_schedule.nested_layers; ++l) m_offload_index.push_back(-1);
  for (const Recompute kind : m_schedule.kinds) {
    m_offload_index.push_back(kind == Recompute::offload ? offloaded++ : -1);
    kinds.push_back(kind == Recompute::offload ? Recompute::layer : kind);
  }
  // The loss comes when no layer computes, so its chunk of logits and their scratch are one memory.
  const std::size_t scratch =
      has_head()
          ? linear_cross_entropy_workspace_bytes<T>(
                Exec(), m_shape.rows(), Impl::VocabularySlice(m_config.vocab_size, m_options.tensor).size())
          : 0;
  // From the last to the first, because gradients lie in the layer behind.
  for (const Recompute kind : std::views::reverse(kinds)) {
    options.recompute = kind;
    options.formats = formats_of_layer(m_options.formats, m_part.end - 1 - std::ssize(m_layers));
    const bool last = m_layers.empty();
    m_layers.emplace_front(m_config, m_shape, options, ledger, last ? nullptr : &m_layers.back(),
                           last ? nullptr : &m_layers.front(), scratch);
  }
}

template <class Exec, Scalar T>
template <class U>
void LlamaModel<Exec, T>::place_ends(Ledger& ledger, MemoryClass memory_class, Ends<U>& ends) const {
  const std::int64_t vocabulary = m_vocabulary.words().size(), hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  const bool tied = m_config.tie_word_embeddings;
  arena.add(ends.embedding, has_embedding() || (tied && has_head()) ? vocabulary : 0, hidden);
  arena.add(ends.norm, has_head() ? hidden : 0);
  const bool own_head = !tied && has_head() && !(memory_class == MemoryClass::gradients && ends_take_turns());
  arena.add(ends.head, own_head ? vocabulary : 0, hidden);
  ends.block = arena.allocate(ledger, memory_class, std::string("LlamaModel::") + to_string(memory_class));
}

template <class Exec, Scalar T>
std::int64_t LlamaModel<Exec, T>::state_rows() const {
  return Impl::state_rows(m_shape, m_options);
}

// What a slot has.
template <class Exec, Scalar T>
Arena<typename Exec::memory_space> LlamaModel<Exec, T>::activation_arena() {
  const std::int64_t rows = state_rows(), hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  m_kept.resize(trains() ? static_cast<std::size_t>(CheckpointedChain<Matrix>::kept_states(m_schedule)) : 2);
  for (Matrix& x : m_kept) arena.add(x, rows, hidden);
  if (trains()) arena.add(m_last, rows, hidden);
  arena.add(m_hidden, rows, hidden);
  arena.add(m_rstd, rows);
  return arena;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::place_activations(Ledger& ledger) {
  const auto arena = activation_arena();
  const std::int64_t rows = state_rows(), hidden = m_config.hidden_size;
  m_passes.resize(static_cast<std::size_t>(trains() ? m_options.slots : 1));
  for (std::size_t slot = 0; slot < m_passes.size(); ++slot)
    m_blocks.push_back(arena.allocate(ledger, MemoryClass::activations, "LlamaModel::activations"));
  const auto offloaded = std::ranges::count(m_schedule.kinds, Recompute::offload);
  if (offloaded > 0) m_offloaded = OffloadedStates<Exec>(ledger, offloaded, array_bytes<T>({rows, hidden}));
  bind_activations();
}

// Those of the slot.
template <class Exec, Scalar T>
void LlamaModel<Exec, T>::bind_activations() {
  activation_arena().bind(m_blocks[m_slot]);
  if (trains())
    m_chain = CheckpointedChain<Matrix>(m_schedule, m_kept);
  else
    m_last = m_kept[m_layers.size() % 2];
}

template <class Exec, Scalar T>
Arena<typename Exec::memory_space> LlamaModel<Exec, T>::workspace_arena() {
  const std::int64_t rows = state_rows(), hidden = m_config.hidden_size;
  Arena<memory_space> arena;
  if (!trains()) return arena;
  arena.add(m_norm_workspace, has_head() ? rms_norm_backward_workspace_bytes<T>(Exec(), rows, hidden) : 0);
  arena.add(m_dx, rows, hidden);
  arena.add(m_dy, rows, hidden);
  return arena;
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::place_workspace(Ledger& ledger) {
  m_loss_workspace = m_layers.front().scratch();
  if (trains())
    m_workspace_block = workspace_arena().allocate(ledger, MemoryClass::workspace, "LlamaModel::workspace");
}

template <class Exec, Scalar T>
bool LlamaModel<Exec, T>::has_room_for(std::int64_t seq_len) {
  m_guard.require("LlamaModel", "has_room_for");
  if (seq_len == m_seq_len) return true;
  const LayerShape shape = std::exchange(m_shape, {m_shape.batch, seq_len});
  const bool has_room = activation_arena().bytes() <= m_blocks[m_slot].bytes() &&
                        workspace_arena().bytes() <= m_workspace_block.bytes();
  m_shape = shape;
  return has_room && std::ranges::all_of(m_layers, [&](auto& layer) { return layer.has_room_for(seq_len); });
}

template <class Exec, Scalar T>
void LlamaModel<Exec, T>::use_seq_len(std::int64_t seq_len) {
  m_guard.require("LlamaModel", "use_seq_len");
  Impl::require_seq_len("LlamaModel", seq_len, m_seq_len, m_options);
  if (seq_len == m_shape.seq_len) return;
  if (!has_room_for(seq_len))
    throw NotSupported("kformer::LlamaModel::use_seq_len: there is no room for sequences of " +
                       std::to_string(seq_len) + " tokens; see has_room_for");
  for (auto& layer : m_layers) layer.use_seq_len(seq_len);
  m_shape.seq_len = seq_len;
  m_passes.assign(m_passes.size(), {});
  m_offloaded.use_bytes(array_bytes<T>({state_rows(), m_config.hidden_size}));
  bind_activations();
  workspace_arena().bind(m_workspace_block);
  m_loss_workspace = m_layers.front().scratch();
}

}  // namespace kformer
