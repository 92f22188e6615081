// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kformer/model/llama_config.hpp"
#include "kformer/model/lora_config.hpp"
#include "model/composed_map_reference.hpp"
#include "ops/lora/reference.hpp"
#include "ops/rms_norm/reference.hpp"
#include "ops/rope/reference.hpp"
#include "ops/swiglu/reference.hpp"
#include "support/references.hpp"

/// \file
/// The decoder layer composed of the blocks' references: every projection on its own, nothing recomputed,
/// nothing shared. See host_tensor.hpp for `Real` and `Store`.

namespace kformer::Testing {

namespace ref = kformer::Impl::reference;
using kformer::Impl::HostTensor;
using kformer::Impl::stored;

/// Tensors by their names in published checkpoints.
template <class Real>
using NamedTensors = std::map<std::string, HostTensor<Real>>;

/// What a layer computes: `y`, `dx` and, by the weights' names, their gradients.
template <class Real>
struct LayerResult {
  HostTensor<Real> y, dx;
  NamedTensors<Real> gradients;
};

/// The same elements under other extents.
template <class Real>
HostTensor<Real> reshaped(const HostTensor<Real>& t, std::initializer_list<std::int64_t> extents) {
  HostTensor<Real> r(extents);
  r.values() = t.values();
  return r;
}

template <class Store, class Real>
HostTensor<Real> sum(HostTensor<Real> a, const HostTensor<Real>& b) {
  for (std::size_t i = 0; i < a.values().size(); ++i)
    a.values()[i] = stored<Store>(a.values()[i] + b.values()[i]);
  return a;
}

/// The layer on `x` (batch · seq, hidden), forward and, for the loss Σ y · dy, backward. A linear map of which
/// `weights` has "….lora_A.weight" and "….lora_B.weight" has an adapter, with "….lora_magnitude_vector" magnitudes. By
/// the name of a map, `masks` has what the input of its adapter is multiplied by.
template <class Real, class Store>
LayerResult<Real> layer_reference(const LlamaConfig& config, std::int64_t batch, std::int64_t seq,
                                  const NamedTensors<Real>& weights, const HostTensor<Real>& x,
                                  const HostTensor<Real>& dy, const LoraConfig& lora = {},
                                  const NamedTensors<Real>& masks = {}) {
  const auto heads = config.num_attention_heads, kv_heads = config.num_key_value_heads, dim = config.head_dim;
  const auto w = [&](const std::string& name) -> const HostTensor<Real>& {
    return weights.at(name + ".weight");
  };
  const auto b = [&](const std::string& name) {
    const auto bias = weights.find(name + ".bias");
    return bias == weights.end() ? HostTensor<Real>() : bias->second;
  };
  const auto adapters = [&](const std::string& name) {
    std::vector<ref::LoraTensors<Real>> parts;
    for (std::size_t i = 0; i < names_of<Projection>.size(); ++i)
      if (name.ends_with(names_of<Projection>[i]) && weights.contains(name + ".lora_A.weight"))
        parts.push_back({w(name + ".lora_B"), 0, Real(lora.scale(static_cast<Projection>(i)))});
    return parts;
  };
  NamedTensors<Real> saved_xa;
  // Of maps with dropout or magnitudes, whose adapters lora_forward does not have.
  const auto composed = [&](const std::string& name) {
    const auto mask = masks.find(name), magnitude = weights.find(name + ".lora_magnitude_vector");
    return ComposedMap<Real, Store>{w(name),
                                    w(name + ".lora_A"),
                                    w(name + ".lora_B"),
                                    b(name),
                                    mask == masks.end() ? HostTensor<Real>() : mask->second,
                                    magnitude == weights.end() ? HostTensor<Real>() : magnitude->second,
                                    adapters(name)[0].scale};
  };
  const auto map = [&](const HostTensor<Real>& from, const std::string& name,
                       const HostTensor<Real>& residual) {
    const auto parts = adapters(name);
    if (parts.empty()) return ref::linear_forward<Real, Store>(from, w(name), b(name), residual);
    if (composed(name).needed()) return composed(name).forward(from, residual);
    auto r = ref::lora_forward<Real, Store>(from, w(name), b(name), residual, w(name + ".lora_A"), parts);
    saved_xa[name] = r.low;
    return r.full;
  };
  const auto project = [&](const HostTensor<Real>& from, const std::string& name, std::int64_t n) {
    return reshaped(map(from, name, {}), {batch, seq, n, dim});
  };
  const AttentionOptions options{.scale = 0, .causal = true, .window = config.sliding_window};
  const auto tables = ref::rope_tables<Real, Real>(seq, dim / 2, config.rope);
  const auto rotate = [&](const HostTensor<Real>& t, int direction) {
    return ref::rope_rotate<Real, Store>(t, tables.cos, tables.sin, {}, 0, config.rope.layout, direction);
  };

  const auto norm1 = ref::rms_norm_forward<Real, Store>(x, {}, w("input_layernorm"), config.rms_norm_eps);
  // Queries or keys before and after the norm of their heads, if the model has one.
  struct Normed {
    HostTensor<Real> raw, y, rstd;
  };
  const auto normed = [&](const std::string& name, std::int64_t n) {
    Normed r;
    r.y = project(norm1.y, "self_attn." + name + "_proj", n);
    if (!config.qk_norm) return r;
    r.raw = reshaped(r.y, {batch * seq * n, dim});
    auto norm =
        ref::rms_norm_forward<Real, Store>(r.raw, {}, w("self_attn." + name + "_norm"), config.rms_norm_eps);
    r.rstd = norm.rstd;
    r.y = reshaped(norm.y, {batch, seq, n, dim});
    return r;
  };
  const auto q_normed = normed("q", heads), k_normed = normed("k", kv_heads);
  const auto q = rotate(q_normed.y, 1), k = rotate(k_normed.y, 1);
  const auto v = project(norm1.y, "self_attn.v_proj", kv_heads);
  const auto attention = ref::attention_forward<Real, Store>(q, k, v, {}, options);
  const auto attended = reshaped(attention.out, {batch * seq, heads * dim});
  const auto h = map(attended, "self_attn.o_proj", x);
  const auto norm2 =
      ref::rms_norm_forward<Real, Store>(h, {}, w("post_attention_layernorm"), config.rms_norm_eps);
  const auto gate = map(norm2.y, "mlp.gate_proj", {});
  const auto up = map(norm2.y, "mlp.up_proj", {});
  const auto product = ref::swiglu_forward<Real, Store>(gate, up);

  LayerResult<Real> r;
  r.y = map(product, "mlp.down_proj", h);

  auto& gradient = r.gradients;
  // The gradient that a projection sends to its input; its weight's is noted down.
  const auto back = [&](const std::string& name, const HostTensor<Real>& input, const HostTensor<Real>& d) {
    gradient[name + ".weight"] = ref::linear_backward_weight<Real>(input, d);
    if (b(name).present()) gradient[name + ".bias"] = ref::linear_backward_bias<Real>(d);
    const auto parts = adapters(name);
    if (parts.empty()) return ref::linear_backward_input<Real, Store>(w(name), d);
    if (composed(name).needed()) {
      auto through = composed(name).backward(input, d);
      gradient[name + ".lora_A.weight"] = through.da;
      gradient[name + ".lora_B.weight"] = through.db;
      if (through.dm.present()) gradient[name + ".lora_magnitude_vector"] = through.dm;
      return through.dx;
    }
    const auto through = ref::lora_backward_input<Real, Store>(w(name), w(name + ".lora_A"), parts, d);
    gradient[name + ".lora_A.weight"] = ref::linear_backward_weight<Real>(input, through.low);
    gradient[name + ".lora_B.weight"] = ref::linear_backward_weight<Real>(saved_xa.at(name), d);
    return through.full;
  };
  const auto d_product = back("mlp.down_proj", product, dy);
  const auto d_mlp = ref::swiglu_backward<Real, Store>(gate, up, d_product);
  const auto d_norm2 =
      sum<Store>(back("mlp.gate_proj", norm2.y, d_mlp.dgate), back("mlp.up_proj", norm2.y, d_mlp.dup));
  const auto d_h =
      ref::rms_norm_backward<Real, Store>(h, w("post_attention_layernorm"), norm2.rstd, d_norm2, dy);
  gradient["post_attention_layernorm.weight"] = d_h.dweight;
  const auto d_attended = back("self_attn.o_proj", attended, d_h.dx);
  const auto d_qkv = ref::attention_backward<Real, Store>(
      q, k, v, {}, reshaped(d_attended, {batch, seq, heads, dim}), options);
  const auto rows = [&](const HostTensor<Real>& t) { return reshaped(t, {batch * seq, t.extent(2) * dim}); };
  const auto unnormed = [&](const std::string& name, const Normed& n, const HostTensor<Real>& d) {
    if (!config.qk_norm) return rows(d);
    const auto norm = "self_attn." + name + "_norm";
    const auto back_norm =
        ref::rms_norm_backward<Real, Store>(n.raw, w(norm), n.rstd, reshaped(d, {n.raw.extent(0), dim}), {});
    gradient[norm + ".weight"] = back_norm.dweight;
    return reshaped(back_norm.dx, {batch * seq, d.extent(2) * dim});
  };
  const auto d_q = unnormed("q", q_normed, rotate(d_qkv.dq, -1));
  const auto d_k = unnormed("k", k_normed, rotate(d_qkv.dk, -1));
  const auto d_norm1 =
      sum<Store>(sum<Store>(back("self_attn.q_proj", norm1.y, d_q), back("self_attn.k_proj", norm1.y, d_k)),
                 back("self_attn.v_proj", norm1.y, rows(d_qkv.dv)));
  const auto d_x = ref::rms_norm_backward<Real, Store>(x, w("input_layernorm"), norm1.rstd, d_norm1, d_h.dx);
  gradient["input_layernorm.weight"] = d_x.dweight;
  r.dx = d_x.dx;
  return r;
}

/// `KEYWORD` is `extern`, or nothing in layer_reference.cpp. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define KFORMER_LAYER_REFERENCE(KEYWORD, R, S)                                                      \
  KEYWORD template LayerResult<R> layer_reference<R, S>(                                            \
      const LlamaConfig&, std::int64_t, std::int64_t, const NamedTensors<R>&, const HostTensor<R>&, \
      const HostTensor<R>&, const LoraConfig&, const NamedTensors<R>&)
#define KFORMER_LAYER_REFERENCES(KEYWORD)                                   \
  KFORMER_LAYER_REFERENCE(KEYWORD, double, double);                         \
  KFORMER_LAYER_REFERENCE(KEYWORD, kformer::Impl::Estimated<float>, float); \
  KFORMER_LAYER_REFERENCE(KEYWORD, kformer::Impl::Estimated<float>, bf16);  \
  KFORMER_LAYER_REFERENCE(KEYWORD, kformer::Impl::Estimated<float>, f16);   \
  KFORMER_LAYER_REFERENCE(KEYWORD, kformer::Impl::Estimated<double>, double)

KFORMER_LAYER_REFERENCES(extern);

}  // namespace kformer::Testing
