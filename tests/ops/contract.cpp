// SPDX-License-Identifier: MIT
// What every public function promises (docs/architecture.md, §2): its kernels run on the instance it is given,
// under labels of ours; it fences nothing, allocates nothing and copies nothing behind the caller's back.
#include <functional>
#include <string>
#include <vector>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/quantized.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/sampling.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "support/every_kernel.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

using Memory = Exec::memory_space;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Memory>;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Memory>;
template <class T>
using Heads = Kokkos::View<T****, Kokkos::LayoutRight, Memory>;

/// A public function with its operands, and the kernels it chooses from.
struct PublicFunction {
  const char* name;                  ///< without namespace
  const char* forced_as;             ///< what KFORMER_KERNEL calls it
  std::vector<std::string> kernels;  ///< the entries of its list
  std::function<void(const Exec&)> call;
};

template <class Problem, class F>
PublicFunction row(const char* name, F call) {
  PublicFunction function{name, Problem::function, {}, call};
  for (const auto& kernel : kernels<Problem, Exec>()) function.kernels.push_back(kernel.name);
  return function;
}

Vector<std::byte> workspace(std::size_t bytes) { return Vector<std::byte>("workspace", bytes); }

template <class T>
void add_rms_norm(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), residual("residual", 5, 12), sum("sum", 5, 12), y("y", 5, 12);
  const Vector<T> weight("weight", 12);
  const Vector<C> rstd("rstd", 5), dweight("dweight", 12);
  const auto bytes = workspace(rms_norm_backward_workspace_bytes<T>(Exec(), 5, 12));
  table.push_back(row<Impl::RmsNormForward>(
      "rms_norm_forward", [=](const Exec& exec) { rms_norm_forward(exec, x, weight, y, rstd); }));
  table.push_back(row<Impl::RmsNormForward>("rms_norm_residual_forward", [=](const Exec& exec) {
    rms_norm_residual_forward(
        exec, RmsNormResidualForwardOperands{
                  .x = x, .residual = residual, .weight = weight, .sum = sum, .y = y, .rstd = rstd});
  }));
  table.push_back(row<Impl::RmsNormBackward>("rms_norm_backward", [=](const Exec& exec) {
    rms_norm_backward(
        exec,
        RmsNormBackwardOperands{.x = x, .weight = weight, .rstd = rstd, .dy = y, .dx = sum, .dweight = dweight},
        bytes);
  }));
  table.push_back(row<Impl::RmsNormBackward>("rms_norm_residual_backward", [=](const Exec& exec) {
    rms_norm_residual_backward(
        exec,
        RmsNormResidualBackwardOperands{
            .sum = x, .weight = weight, .rstd = rstd, .dy = y, .dsum = residual, .dx = sum, .dweight = dweight},
        bytes);
  }));
}

template <class T>
void add_rope(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<C> cos("cos", 5, 4), sin("sin", 5, 4);
  const Heads<T> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8);
  const Matrix<std::int32_t> positions("positions", 2, 5);
  table.push_back(row<Impl::RopeTables>("rope_tables", [=](const Exec& exec) { rope_tables(exec, cos, sin); }));
  table.push_back(
      row<Impl::RopeForward>("rope_forward", [=](const Exec& exec) { rope_forward(exec, q, k, cos, sin); }));
  table.push_back(row<Impl::RopeForward>(
      "rope_forward with positions", [=](const Exec& exec) { rope_forward(exec, q, k, cos, sin, positions); }));
  table.push_back(
      row<Impl::RopeBackward>("rope_backward", [=](const Exec& exec) { rope_backward(exec, q, k, cos, sin); }));
  table.push_back(row<Impl::RopeBackward>("rope_backward with positions", [=](const Exec& exec) {
    rope_backward(exec, q, k, cos, sin, positions);
  }));
}

template <class T>
void add_linear(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), weight("weight", 7, 12), y("y", 5, 7), residual("residual", 5, 7);
  const Vector<T> bias("bias", 7);
  const Matrix<C> dweight("dweight", 7, 12);
  const Vector<C> dbias("dbias", 7);
  table.push_back(row<Impl::LinearForward>("linear_forward",
                                           [=](const Exec& exec) { linear_forward(exec, x, weight, y); }));
  table.push_back(row<Impl::LinearForward>(
      "linear_bias_forward", [=](const Exec& exec) { linear_bias_forward(exec, x, weight, bias, y); }));
  table.push_back(row<Impl::LinearForward>("linear_residual_forward", [=](const Exec& exec) {
    linear_residual_forward(exec, x, weight, residual, y);
  }));
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward_input", [=](const Exec& exec) { linear_backward_input(exec, weight, y, x); }));
  const Matrix<T> weight_gate_up("weight_gate_up", 14, 12), gate_up("gate_up", 5, 14);
  const Matrix<C> cos("cos", 9, 3), sin("sin", 9, 3);
  table.push_back(row<Impl::LinearSwigluForward>("linear_swiglu_forward", [=](const Exec& exec) {
    linear_swiglu_forward(exec, x, weight_gate_up, gate_up, y);
  }));
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward", [=](const Exec& exec) {
    linear_rope_forward(exec, x, weight, cos, sin, y, {.heads = 1, .seq_len = 5});
  }));
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward with a bias", [=](const Exec& exec) {
    linear_bias_rope_forward(
        exec,
        LinearBiasRopeForwardOperands{.x = x, .weight = weight, .bias = bias, .cos = cos, .sin = sin, .y = y},
        {.heads = 1, .seq_len = 5});
  }));
  const Kokkos::View<T***, Kokkos::LayoutRight, Exec> xs("xs", 2, 5, 12), weights("weights", 2, 7, 12),
      ys("ys", 2, 5, 7);
  table.push_back(row<Impl::LinearForward>("linear_forward of a batch",
                                           [=](const Exec& exec) { linear_forward(exec, xs, weights, ys); }));
  table.push_back(row<Impl::LinearBackwardWeight>(
      "linear_backward_weight", [=](const Exec& exec) { linear_backward_weight(exec, x, y, dweight); }));
  const Matrix<T> dx("dx", 5, 12);
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward", [=](const Exec& exec) { linear_backward(exec, x, weight, y, dx, dweight); }));
  table.push_back(row<Impl::LinearBackwardBias>(
      "linear_backward_bias", [=](const Exec& exec) { linear_backward_bias(exec, y, dbias); }));
}

template <class T>
void add_swiglu(std::vector<PublicFunction>& table) {
  const Matrix<T> gate("gate", 5, 12), up("up", 5, 12), y("y", 5, 12), dgate("dgate", 5, 12), dup("dup", 5, 12);
  table.push_back(
      row<Impl::SwigluForward>("swiglu_forward", [=](const Exec& exec) { swiglu_forward(exec, gate, up, y); }));
  table.push_back(row<Impl::SwigluBackward>(
      "swiglu_backward", [=](const Exec& exec) { swiglu_backward(exec, gate, up, y, dgate, dup); }));
}

/// Composed of the products and of swiglu: it has no kernel list.
template <class T>
void add_swiglu_mlp(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), weight_gate_up("weight_gate_up", 14, 12), weight_down("weight_down", 12, 7);
  const Matrix<T> gate_up("gate_up", 5, 14), product("product", 5, 7), y("y", 5, 12);
  const Matrix<T> dproduct("dproduct", 5, 7), dgate_up("dgate_up", 5, 14), dx("dx", 5, 12);
  const Matrix<C> dweight_gate_up("dweight_gate_up", 14, 12), dweight_down("dweight_down", 12, 7);
  table.push_back(row<Impl::LinearForward>("swiglu_mlp_forward", [=](const Exec& exec) {
    swiglu_mlp_forward(exec, SwigluMlpForwardOperands{.x = x,
                                                      .weight_gate_up = weight_gate_up,
                                                      .weight_down = weight_down,
                                                      .gate_up = gate_up,
                                                      .product = product,
                                                      .y = y});
  }));
  table.push_back(row<Impl::LinearBackwardWeight>("swiglu_mlp_backward", [=](const Exec& exec) {
    swiglu_mlp_backward(exec, SwigluMlpBackwardOperands{.x = x,
                                                        .weight_gate_up = weight_gate_up,
                                                        .weight_down = weight_down,
                                                        .gate_up = gate_up,
                                                        .product = product,
                                                        .dy = y,
                                                        .dproduct = dproduct,
                                                        .dgate_up = dgate_up,
                                                        .dx = dx,
                                                        .dweight_gate_up = dweight_gate_up,
                                                        .dweight_down = dweight_down});
  }));
}

template <class T>
void add_standard_attention(std::vector<PublicFunction>& table) {
  const Heads<T> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8), v("v", 2, 5, 2, 8), out("out", 2, 5, 4, 8);
  const Heads<T> mask("mask", 1, 1, 5, 5), probabilities("probabilities", 2, 4, 5, 5);
  const Heads<T> dq("dq", 2, 5, 4, 8), dk("dk", 2, 5, 2, 8), dv("dv", 2, 5, 2, 8);
  const auto bytes = workspace(standard_attention_backward_workspace_bytes<T>(Exec(), 2, 4, 5, 5));
  table.push_back(row<Impl::StandardAttentionForward>("standard_attention_forward", [=](const Exec& exec) {
    standard_attention_forward(exec, q, k, v, out, probabilities);
  }));
  table.push_back(
      row<Impl::StandardAttentionForward>("standard_attention_masked_forward", [=](const Exec& exec) {
        standard_attention_masked_forward(
            exec, StandardAttentionMaskedForwardOperands{
                      .q = q, .k = k, .v = v, .mask = mask, .out = out, .probabilities = probabilities});
      }));
  table.push_back(row<Impl::StandardAttentionBackward>("standard_attention_backward", [=](const Exec& exec) {
    standard_attention_backward(
        exec,
        StandardAttentionBackwardOperands{
            .q = q, .k = k, .v = v, .probabilities = probabilities, .dout = out, .dq = dq, .dk = dk, .dv = dv},
        {}, bytes);
  }));
}

template <class T>
void add_attention(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Heads<T> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8), v("v", 2, 5, 2, 8), out("out", 2, 5, 4, 8);
  const Heads<T> bias("bias", 1, 1, 5, 5), dq("dq", 2, 5, 4, 8), dk("dk", 2, 5, 2, 8), dv("dv", 2, 5, 2, 8);
  const Heads<T> dbias("dbias", 1, 1, 5, 5);
  const Vector<T> sinks("sinks", 4);
  const Vector<C> slopes("slopes", 4), dsinks("dsinks", 4);
  const Kokkos::View<C***, Kokkos::LayoutRight, Memory> lse("lse", 2, 4, 5);
  // Made in each call: the Views keep the memory, extras do not.
  const auto extras = [=] { return AttentionExtras<Exec>().bias(bias).sinks(sinks).alibi_slopes(slopes); };
  const auto gradients = [=] { return AttentionExtraGradients<Exec>().bias(dbias).sinks(dsinks); };
  // Enough for any kernel of the list.
  const auto bytes = workspace(std::size_t(1) << 20);
  table.push_back(row<Impl::AttentionForward>("attention_forward", [=](const Exec& exec) {
    attention_forward(exec, q, k, v, out, lse, {}, {}, bytes);
  }));
  table.push_back(row<Impl::AttentionForward>("attention_forward with extras", [=](const Exec& exec) {
    attention_forward(exec, q, k, v, out, lse, {}, extras(), bytes);
  }));
  table.push_back(row<Impl::AttentionBackward>("attention_backward", [=](const Exec& exec) {
    attention_backward(
        exec,
        AttentionBackwardOperands{
            .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = dq, .dk = dk, .dv = dv},
        {}, {}, {}, bytes);
  }));
  table.push_back(row<Impl::AttentionBackward>("attention_backward with extras", [=](const Exec& exec) {
    attention_backward(
        exec,
        AttentionBackwardOperands{
            .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = dq, .dk = dk, .dv = dv},
        {}, extras(), gradients(), bytes);
  }));
}

template <class T>
void add_embedding(std::vector<PublicFunction>& table) {
  const Vector<std::int32_t> ids("ids", 5);
  const Matrix<T> weight("weight", 7, 12), y("y", 5, 12);
  const Matrix<compute_t<T>> dweight("dweight", 7, 12);
  table.push_back(row<Impl::EmbeddingForward>(
      "embedding_forward", [=](const Exec& exec) { embedding_forward(exec, ids, weight, y); }));
  table.push_back(row<Impl::EmbeddingBackward>(
      "embedding_backward", [=](const Exec& exec) { embedding_backward(exec, ids, y, dweight); }));
}

template <class T>
void add_quantized(std::vector<PublicFunction>& table) {
  const Vector<std::int32_t> ids("ids", 5);
  const Matrix<T> x("x", 5, 64), y("y", 5, 7), rows("rows", 5, 64), weight("weight", 7, 64);
  const Kokkos::View<std::byte*, Memory> bytes("bytes", quantized_bytes(QuantizedFormat::q4_1, 7, 64));
  // Made in each call: the Views keep the memory, matrices do not.
  const auto matrix = [=] { return QuantizedOutput{QuantizedFormat::q4_1, bytes.data(), 7, 64}; };
  table.push_back(row<Impl::Quantize>("quantize", [=](const Exec& exec) { quantize(exec, weight, matrix()); }));
  table.push_back(
      row<Impl::Dequantize>("dequantize", [=](const Exec& exec) { dequantize(exec, matrix(), weight); }));
  for (const auto activations : {Activations::full, Activations::int8})
    table.push_back(row<Impl::QuantizedLinearForward>("quantized_linear_forward", [=](const Exec& exec) {
      quantized_linear_forward(exec, x, matrix(), y, {activations});
    }));
  table.push_back(row<Impl::QuantizedLinearForward>("quantized_linear_residual_forward", [=](const Exec& exec) {
    quantized_linear_residual_forward(exec, x, matrix(), y, y);
  }));
  table.push_back(row<Impl::QuantizedEmbeddingForward>("quantized_embedding_forward", [=](const Exec& exec) {
    quantized_embedding_forward(exec, ids, matrix(), rows);
  }));
}

/// The linear map is composed of these, of the products and of the quantised linear map.
template <class T>
void add_ternary(std::vector<PublicFunction>& table) {
  const Matrix<T> x("x", 5, 64), y("y", 5, 7), dx("dx", 5, 64), weight("weight", 7, 64);
  const Matrix<compute_t<T>> dweight("dweight", 7, 64);
  const auto bytes = workspace(ternary_linear_backward_workspace_bytes<T>(Exec(), 5, 64, 7));
  const Kokkos::View<std::byte*, Memory> packed("packed", quantized_bytes(QuantizedFormat::tq2_0, 7, 64));
  table.push_back(row<Impl::TernaryQuantize>("ternary_quantize", [=](const Exec& exec) {
    ternary_quantize(exec, weight, QuantizedOutput{QuantizedFormat::tq2_0, packed.data(), 7, 64}, bytes);
  }));
  table.push_back(row<Impl::TernaryActivations>("ternary_activations",
                                                [=](const Exec& exec) { ternary_activations(exec, x, dx); }));
  table.push_back(row<Impl::TernaryQuantize>("ternary_linear_forward", [=](const Exec& exec) {
    ternary_linear_forward(exec, x, weight, y, {}, bytes);
  }));
  table.push_back(row<Impl::TernaryActivations>("ternary_linear_backward", [=](const Exec& exec) {
    ternary_linear_backward(exec, x, weight, y, dx, dweight, {}, bytes);
  }));
}

template <class T>
void add_cross_entropy(std::vector<PublicFunction>& table) {
  const Matrix<T> logits("logits", 5, 12), dlogits("dlogits", 5, 12);
  const Vector<std::int32_t> targets("targets", 5);
  const Vector<compute_t<T>> loss("loss", 5), lse("lse", 5), dloss("dloss", 5);
  table.push_back(row<Impl::CrossEntropyForward>("cross_entropy_forward", [=](const Exec& exec) {
    cross_entropy_forward(exec, logits, targets, loss, lse);
  }));
  table.push_back(row<Impl::CrossEntropyBackward>("cross_entropy_backward", [=](const Exec& exec) {
    cross_entropy_backward(exec, logits, targets, lse, dloss, dlogits);
  }));
}

/// Composed of the products and of cross entropy; two chunks.
template <class T>
void add_linear_cross_entropy(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), weight("weight", 7, 12), dx("dx", 5, 12);
  const Vector<std::int32_t> targets("targets", 5);
  const Vector<C> loss("loss", 5), dloss("dloss", 5);
  const Matrix<C> dweight("dweight", 7, 12);
  const LinearCrossEntropyOptions options{.chunk_rows = 3};
  const auto bytes = workspace(linear_cross_entropy_workspace_bytes<T>(Exec(), 5, 7, options));
  table.push_back(row<Impl::CrossEntropyForward>(
      "linear_cross_entropy of the loss alone",
      [=](const Exec& exec) { linear_cross_entropy(exec, x, weight, targets, loss, options, bytes); }));
  table.push_back(row<Impl::CrossEntropyBackward>("linear_cross_entropy", [=](const Exec& exec) {
    linear_cross_entropy(exec,
                         LinearCrossEntropyOperands{.x = x,
                                                    .weight = weight,
                                                    .targets = targets,
                                                    .dloss = dloss,
                                                    .loss = loss,
                                                    .dx = dx,
                                                    .dweight = dweight},
                         options, bytes);
  }));
}

template <class T>
void add_adamw(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> weight("weight", 5, 60);
  const Matrix<C> gradient("gradient", 5, 60), master("master", 5, 60), m("m", 5, 60), v("v", 5, 60);
  const Matrix<std::uint8_t> m_code("m_code", 5, 60), v_code("v_code", 5, 60);
  const Vector<float> m_scale("m_scale", 2), v_scale("v_scale", 2);
  const Vector<C> norm("norm", 1);
  // Made in each call: the Views keep the memory, parameters do not.
  const auto with_states = [=](const auto& first, const auto& second) {
    const TensorRef exact = sizeof(T) == 2 ? tensor_ref(master) : TensorRef{};
    return std::vector<AdamWParameter>{
        {tensor_ref(weight), tensor_ref(gradient), exact, tensor_ref(first), tensor_ref(second)}};
  };
  const auto plain = [=] { return with_states(m, v); };
  const auto coded = [=] {
    auto parameters = with_states(m_code, v_code);
    parameters[0].m_scale = tensor_ref(m_scale);
    parameters[0].v_scale = tensor_ref(v_scale);
    return parameters;
  };
  const auto bytes = workspace(gradient_norm_workspace_bytes(Exec(), plain()));
  table.push_back(row<Impl::GradientNorm>(
      "gradient_norm", [=](const Exec& exec) { gradient_norm(exec, plain(), norm, bytes); }));
  table.push_back(row<Impl::AdamW>("adamw", [=](const Exec& exec) { adamw(exec, plain()); }));
  table.push_back(row<Impl::AdamW>("adamw with a norm",
                                   [=](const Exec& exec) { adamw(exec, plain(), norm, {.max_norm = 1}); }));
  if constexpr (sizeof(T) < 8)
    table.push_back(
        row<Impl::AdamW>("adamw with 8-bit states", [=](const Exec& exec) { adamw(exec, coded()); }));
}

template <class T>
void add_sampling(std::vector<PublicFunction>& table) {
  const Matrix<T> logits("logits", 5, 12);
  const Matrix<std::int32_t> history("history", 5, 3);
  const Vector<std::int32_t> lengths("lengths", 5), positions("positions", 5), tokens("tokens", 5);
  const Vector<compute_t<T>> log_probabilities("log_probabilities", 5);
  const SamplingOptions options{.top_k = 3, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.1};
  const auto bytes = workspace(sample_workspace_bytes<T>(Exec(), 5, 12, true, options));
  table.push_back(row<Impl::Sampling>("sample", [=](const Exec& exec) {
    sample(exec,
           SampleOperands{.logits = logits,
                          .history = history,
                          .history_lengths = lengths,
                          .positions = positions,
                          .tokens = tokens,
                          .log_probabilities = log_probabilities},
           options, bytes);
  }));
  table.push_back(row<Impl::Sampling>("sample without a history", [=](const Exec& exec) {
    sample(exec, logits, positions, tokens, log_probabilities, {.temperature = 0});
  }));
  table.push_back(row<Impl::TokenLogProbabilities>("token_log_probabilities", [=](const Exec& exec) {
    token_log_probabilities(exec, logits, tokens, log_probabilities);
  }));
}

template <class T>
using Rows = Kokkos::View<T***, Kokkos::LayoutRight, Memory>;

template <class T>
void add_kv_cache(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Rows<T> k("k", 3, 2, 8), v("v", 3, 2, 8), k_cache("k_cache", 12, 2, 8), v_cache("v_cache", 12, 2, 8);
  const Rows<std::uint8_t> k_codes("k_codes", 3, 2, 8), v_codes("v_codes", 3, 2, 8);
  const Matrix<C> k_scale("k_scale", 3, 2), v_scale("v_scale", 3, 2);
  const Vector<std::int32_t> slots("slots", 3);
  const Heads<T> arrays("arrays", 2, 12, 2, 8), others("others", 2, 12, 2, 8);
  const Rows<std::int32_t> kept("kept", 2, 2, 5);
  const Rows<T> q("q", 3, 4, 8), bias("bias", 4, 3, 12);
  const Matrix<C> lse("lse", 4, 3), mass("mass", 2, 12);
  const Rows<C> masses("masses", 2, 2, 12);
  const Matrix<std::int32_t> positions("positions", 2, 12);
  table.push_back(row<Impl::KvAppend>(
      "kv_append", [=](const Exec& exec) { kv_append(exec, k, v, slots, k_cache, v_cache); }));
  table.push_back(row<Impl::KvGather>(
      "kv_gather", [=](const Exec& exec) { kv_gather(exec, k_cache, v_cache, slots, k, v, 4); }));
  table.push_back(row<Impl::KvCopy>("kv_copy", [=](const Exec& exec) { kv_copy(exec, arrays, others); }));
  table.push_back(
      row<Impl::KvCompact>("kv_compact", [=](const Exec& exec) { kv_compact(exec, arrays, kept); }));
  table.push_back(row<Impl::KvAppendInt8>("kv_append_int8", [=](const Exec& exec) {
    kv_append_int8(exec, KvAppendInt8Operands{.k = k,
                                              .v = v,
                                              .slots = slots,
                                              .k_codes = k_codes,
                                              .k_scale = k_scale,
                                              .v_codes = v_codes,
                                              .v_scale = v_scale});
  }));
  table.push_back(row<Impl::KvGatherInt8>("kv_gather_int8", [=](const Exec& exec) {
    kv_gather_int8(
        exec,
        KvGatherInt8Operands{
            .k_codes = k_codes, .k_scale = k_scale, .v_codes = v_codes, .v_scale = v_scale, .k = k, .v = v});
  }));
  table.push_back(row<Impl::KvAttentionMass>("kv_attention_mass", [=](const Exec& exec) {
    kv_attention_mass(exec, q, k_cache, lse, positions, mass);
  }));
  table.push_back(row<Impl::KvHeavyHitters>(
      "kv_heavy_hitters", [=](const Exec& exec) { kv_heavy_hitters(exec, masses, kept, 2); }));
  table.push_back(
      row<Impl::KvMask>("kv_mask", [=](const Exec& exec) { kv_mask(exec, positions, bias, {.window = 3}); }));
}

template <class T>
std::vector<PublicFunction> every_public_function() {
  std::vector<PublicFunction> table;
  add_rms_norm<T>(table);
  add_rope<T>(table);
  add_linear<T>(table);
  add_swiglu<T>(table);
  add_swiglu_mlp<T>(table);
  add_standard_attention<T>(table);
  add_attention<T>(table);
  add_embedding<T>(table);
  add_quantized<T>(table);
  add_ternary<T>(table);
  add_cross_entropy<T>(table);
  add_linear_cross_entropy<T>(table);
  add_adamw<T>(table);
  add_sampling<T>(table);
  add_kv_cache<T>(table);
  return table;
}

/// An instance that is not the default one. Device ids tell instances apart on devices; on the host Kokkos
/// gives all instances of a space one id, and there only a kernel on another space is seen.
Exec own_instance() { return Kokkos::Experimental::partition_space(Exec{}, 1)[0]; }

/// A space beside the one that is tested, where this Kokkos has one.
#ifdef KOKKOS_ENABLE_SERIAL
using Elsewhere =
    std::conditional_t<std::is_same_v<Exec, Kokkos::Serial>, Kokkos::DefaultExecutionSpace, Kokkos::Serial>;
#else
using Elsewhere = Kokkos::DefaultExecutionSpace;
#endif

/// The origin of a kernel. A kernel of another library has that library's labels, or is not a Kokkos kernel at
/// all.
enum class Origin { ours, library };
Origin origin_of(const std::string& kernel) { return kernel == "kokkos_blas" ? Origin::library : Origin::ours; }

/// What a recorded call did against its promise.
std::vector<std::string> breaches(const ToolsRecorder& seen, const Exec& exec, Origin origin) {
  const std::uint32_t device = Kokkos::Tools::Experimental::device_id(exec);
  std::vector<std::string> found;
  for (const auto& kernel : seen.kernels()) {
    if (kernel.device != device) found.push_back("kernel on another instance: " + kernel.label);
    if (origin == Origin::ours && !kernel.label.starts_with("kformer::"))
      found.push_back("kernel of another name: " + kernel.label);
  }
  for (const auto& fence : seen.fences()) found.push_back("fence: " + fence);
  for (const auto& allocation : seen.allocations()) found.push_back("allocation: " + allocation.label);
  for (const auto& copy : seen.deep_copies()) found.push_back("copy: " + copy);
  if (origin == Origin::ours && seen.kernels().empty()) found.push_back("no kernel");
  return found;
}

template <class F>
std::vector<std::string> breaches_of(F call, Origin origin = Origin::ours) {
  const Exec exec = own_instance();
  call(exec);  // the first use of an instance may set up its scratch memory
  exec.fence("kformer::Testing::warm_up");
  const ToolsRecorder recorder;
  call(exec);
  return breaches(recorder, exec, origin);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(contract)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_kernel_of_every_public_function_keeps_it, T, Scalars) {
  for (const PublicFunction& function : every_public_function<T>()) {
    int ran = 0;
    for (const std::string& kernel : function.kernels) {
      const ForcedKernels forced(std::string(function.forced_as) + ':' + kernel);
      try {
        function.call(Exec());
      } catch (const NotSupported&) {
        continue;  // it refuses these operands
      }
      ++ran;
      for (const std::string& breach : breaches_of(function.call, origin_of(kernel)))
        BOOST_ERROR(function.name << '[' << kernel << "]: " << breach);
    }
    BOOST_TEST(ran > 0, function.name);
  }
}

// The recorder must see a breach: each of these kernels breaks the promise in one way.
BOOST_AUTO_TEST_CASE(breaches_are_seen) {
  const Vector<float> data("data", 8);
  const auto launch = [=](const Exec& exec, const char* label) {
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(exec, 0, 8), KOKKOS_LAMBDA(int i) { data(i) += 1; });
  };
  const auto only = [](const std::vector<std::string>& found) {
    BOOST_REQUIRE(found.size() == 1u);
    return found.front();
  };
  BOOST_TEST(breaches_of([&](const Exec& exec) { launch(exec, "kformer::good"); }).empty());
  BOOST_TEST(only(breaches_of([&](const Exec& exec) { launch(exec, "good"); })) ==
             "kernel of another name: good");
  BOOST_TEST(only(breaches_of([&](const Exec& exec) {
               launch(exec, "kformer::good");
               exec.fence("hidden");
             })) == "fence: hidden");
  BOOST_TEST(only(breaches_of([](const Exec&) {})) == "no kernel");
  if (!std::is_same_v<Exec, Elsewhere>) {
    const auto elsewhere = breaches_of([&](const Exec& exec) {
      launch(exec, "kformer::good");
      Kokkos::parallel_for("kformer::elsewhere", Kokkos::RangePolicy<Elsewhere>(0, 1), KOKKOS_LAMBDA(int){});
    });
    BOOST_TEST(elsewhere.front() == "kernel on another instance: kformer::elsewhere");
  }
  const auto reduced = breaches_of([&](const Exec& exec) {
    float sum = 0;
    Kokkos::parallel_reduce(
        "sum", Kokkos::RangePolicy<Exec>(exec, 0, 8), KOKKOS_LAMBDA(int i, float& s) { s += data(i); }, sum);
  });
  BOOST_TEST(reduced.front() == "kernel of another name: sum");
  const auto allocated = breaches_of([&](const Exec& exec) {
    launch(exec, "kformer::good");
    Vector<float>(Kokkos::view_alloc("hidden", Kokkos::WithoutInitializing), 8);
  });
  BOOST_TEST((std::find(allocated.begin(), allocated.end(), "allocation: hidden") != allocated.end()));
  const Vector<float> other("other", 8);
  const auto copied = breaches_of([&](const Exec& exec) {
    launch(exec, "kformer::good");
    Kokkos::deep_copy(exec, other, data);
  });
  BOOST_TEST((std::find(copied.begin(), copied.end(), "copy: data -> other") != copied.end()));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
