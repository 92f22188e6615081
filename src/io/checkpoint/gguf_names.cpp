// SPDX-License-Identifier: MIT
#include "io/checkpoint/gguf_names.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace kformer::Impl {
namespace {

using Row = std::pair<std::string_view, std::string_view>;

constexpr std::array model_names{Row{"token_embd.weight", "model.embed_tokens.weight"},
                                 Row{"output_norm.weight", "model.norm.weight"},
                                 Row{"output.weight", "lm_head.weight"}};

constexpr std::array layer_names{
    Row{"attn_norm", "input_layernorm"},    Row{"attn_q", "self_attn.q_proj"},
    Row{"attn_k", "self_attn.k_proj"},      Row{"attn_v", "self_attn.v_proj"},
    Row{"attn_output", "self_attn.o_proj"}, Row{"attn_q_norm", "self_attn.q_norm"},
    Row{"attn_k_norm", "self_attn.k_norm"}, Row{"ffn_norm", "post_attention_layernorm"},
    Row{"ffn_gate", "mlp.gate_proj"},       Row{"ffn_up", "mlp.up_proj"},
    Row{"ffn_down", "mlp.down_proj"}};

template <std::size_t n>
std::optional<std::string_view> look_up(const std::array<Row, n>& rows, std::string_view name) {
  const auto row =
      std::find_if(rows.begin(), rows.end(), [&](const Row& entry) { return entry.first == name; });
  return row == rows.end() ? std::nullopt : std::optional(row->second);
}

/// Whether this number has only one spelling.
bool is_number(std::string_view word) {
  return !word.empty() && word.find_first_not_of("0123456789") == word.npos && (word == "0" || word[0] != '0');
}

}  // namespace

std::optional<std::string> published_name(std::string_view gguf_name) {
  if (const auto name = look_up(model_names, gguf_name)) return std::string(*name);
  constexpr std::string_view start = "blk.";
  if (!gguf_name.starts_with(start)) return std::nullopt;
  const std::string_view rest = gguf_name.substr(start.size());
  const std::size_t first = rest.find('.');
  const std::size_t last = rest.rfind('.');
  if (first == rest.npos || first == last || !is_number(rest.substr(0, first))) return std::nullopt;
  const auto name = look_up(layer_names, rest.substr(first + 1, last - first - 1));
  const std::string_view kind = rest.substr(last);
  if (!name || (kind != ".weight" && kind != ".bias")) return std::nullopt;
  return "model.layers." + std::string(rest.substr(0, first)) + "." + std::string(*name) + std::string(kind);
}

}  // namespace kformer::Impl
