// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/lora.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "ops/public_function.hpp"

/// \file
/// The public functions of a transformer layer.

namespace kformer::Testing {

// Clang 19 cannot deduce the template arguments of operands that are made inside these lambdas.

template <class T>
void add_rms_norm(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const Matrix<T> x("x", e.rows, e.in), residual("residual", e.rows, e.in), sum("sum", e.rows, e.in),
      y("y", e.rows, e.in);
  const Vector<T> weight("weight", e.in);
  const Vector<C> rstd("rstd", e.rows), dweight("dweight", e.in);
  const auto bytes = workspace(rms_norm_backward_workspace_bytes<T>(Exec(), e.rows, e.in));
  table.push_back(row<Impl::RmsNormForward>(
      "rms_norm_forward", [=](const auto&... exec) { rms_norm_forward(exec..., x, weight, y, rstd); }));
  const RmsNormResidualForwardOperands added{
      .x = x, .residual = residual, .weight = weight, .sum = sum, .y = y, .rstd = rstd};
  table.push_back(row<Impl::RmsNormForward>(
      "rms_norm_residual_forward", [=](const auto&... exec) { rms_norm_residual_forward(exec..., added); }));
  const Tokens<T> q("q", e.rows, 4, e.in), k("k", e.rows, 2, e.in);
  const QkNormForwardOperands heads{.q = q,
                                    .k = k,
                                    .q_weight = weight,
                                    .k_weight = Vector<T>("k_weight", e.in),
                                    .q_out = q,
                                    .k_out = k,
                                    .q_rstd = Matrix<C>("q_rstd", e.rows, 4),
                                    .k_rstd = Matrix<C>("k_rstd", e.rows, 2)};
  table.push_back(row<Impl::QkNormForward>("qk_norm_forward",
                                           [=](const auto&... exec) { qk_norm_forward(exec..., heads); }));
  const RmsNormBackwardOperands backward{
      .x = x, .weight = weight, .rstd = rstd, .dy = y, .dx = sum, .dweight = dweight};
  table.push_back(row<Impl::RmsNormBackward>(
      "rms_norm_backward", [=](const auto&... exec) { rms_norm_backward(exec..., backward, bytes); }));
  const RmsNormResidualBackwardOperands residual_backward{
      .sum = x, .weight = weight, .rstd = rstd, .dy = y, .dsum = residual, .dx = sum, .dweight = dweight};
  table.push_back(row<Impl::RmsNormBackward>("rms_norm_residual_backward", [=](const auto&... exec) {
    rms_norm_residual_backward(exec..., residual_backward, bytes);
  }));
}

template <class T>
void add_rope(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const Matrix<C> cos("cos", e.rows, e.head_dim / 2), sin("sin", e.rows, e.head_dim / 2);
  const Heads<T> q("q", 2, e.rows, 4, e.head_dim), k("k", 2, e.rows, 2, e.head_dim);
  const Matrix<std::int32_t> positions("positions", 2, e.rows);
  table.push_back(
      row<Impl::RopeTables>("rope_tables", [=](const auto&... exec) { rope_tables(exec..., cos, sin); }));
  table.push_back(row<Impl::RopeForward>("rope_forward",
                                         [=](const auto&... exec) { rope_forward(exec..., q, k, cos, sin); }));
  table.push_back(row<Impl::RopeForward>("rope_forward with positions", [=](const auto&... exec) {
    rope_forward(exec..., q, k, cos, sin, positions);
  }));
  table.push_back(row<Impl::RopeBackward>(
      "rope_backward", [=](const auto&... exec) { rope_backward(exec..., q, k, cos, sin); }));
  table.push_back(row<Impl::RopeBackward>("rope_backward with positions", [=](const auto&... exec) {
    rope_backward(exec..., q, k, cos, sin, positions);
  }));
}

template <class T>
void add_linear(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const Matrix<T> x("x", e.rows, e.in), weight("weight", e.out, e.in), y("y", e.rows, e.out),
      residual("residual", e.rows, e.out);
  const Vector<T> bias("bias", e.out);
  const Matrix<C> dweight("dweight", e.out, e.in);
  const Vector<C> dbias("dbias", e.out);
  table.push_back(row<Impl::LinearForward>(
      "linear_forward", [=](const auto&... exec) { linear_forward(exec..., x, weight, y); }));
  table.push_back(row<Impl::LinearForward>(
      "linear_bias_forward", [=](const auto&... exec) { linear_bias_forward(exec..., x, weight, bias, y); }));
  table.push_back(row<Impl::LinearForward>("linear_residual_forward", [=](const auto&... exec) {
    linear_residual_forward(exec..., x, weight, residual, y);
  }));
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward_input", [=](const auto&... exec) { linear_backward_input(exec..., weight, y, x); }));
  const Matrix<T> weight_gate_up("weight_gate_up", 2 * e.out, e.in), gate_up("gate_up", e.rows, 2 * e.out);
  const Matrix<C> cos("cos", 2 * e.rows, 3), sin("sin", 2 * e.rows, 3);
  table.push_back(row<Impl::LinearSwigluForward>("linear_swiglu_forward", [=](const auto&... exec) {
    linear_swiglu_forward(exec..., x, weight_gate_up, gate_up, y);
  }));
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward", [=](const auto&... exec) {
    linear_rope_forward(exec..., x, weight, cos, sin, y, {.heads = 1, .seq_len = e.rows});
  }));
  const LinearBiasRopeForwardOperands biased{
      .x = x, .weight = weight, .bias = bias, .cos = cos, .sin = sin, .y = y};
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward with a bias", [=](const auto&... exec) {
    linear_bias_rope_forward(exec..., biased, {.heads = 1, .seq_len = e.rows});
  }));
  const Kokkos::View<T***, Kokkos::LayoutRight, Exec> xs("xs", 2, e.rows, e.in),
      weights("weights", 2, e.out, e.in), ys("ys", 2, e.rows, e.out);
  table.push_back(row<Impl::LinearForward>(
      "linear_forward of a batch", [=](const auto&... exec) { linear_forward(exec..., xs, weights, ys); }));
  table.push_back(row<Impl::LinearBackwardWeight>(
      "linear_backward_weight", [=](const auto&... exec) { linear_backward_weight(exec..., x, y, dweight); }));
  const Matrix<T> dx("dx", e.rows, e.in);
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward", [=](const auto&... exec) { linear_backward(exec..., x, weight, y, dx, dweight); }));
  table.push_back(row<Impl::LinearBackwardBias>(
      "linear_backward_bias", [=](const auto&... exec) { linear_backward_bias(exec..., y, dbias); }));
}

template <class T>
void add_lora(std::vector<PublicFunction>& table, const Extents& e) {
  const Matrix<T> x("x", e.rows, e.in), weight("weight", e.out, e.in), y("y", e.rows, e.out),
      residual("residual", e.rows, e.out), a("a", 3, e.in), xa("xa", e.rows, 3), dx("dx", e.rows, e.in);
  const Vector<T> bias("bias", e.out);
  const std::array parts{LoraPart{Matrix<T>("b", e.out, 3)}};
  const LoraForwardOperands forward{.x = x, .weight = weight, .a = a, .parts = parts, .xa = xa, .y = y};
  table.push_back(
      row<Impl::LoraForward>("lora_forward", [=](const auto&... exec) { lora_forward(exec..., forward); }));
  const LoraBiasForwardOperands biased{
      .x = x, .weight = weight, .bias = bias, .a = a, .parts = parts, .xa = xa, .y = y};
  table.push_back(row<Impl::LoraForward>("lora_bias_forward",
                                         [=](const auto&... exec) { lora_bias_forward(exec..., biased); }));
  const LoraResidualForwardOperands added{
      .x = x, .weight = weight, .residual = residual, .a = a, .parts = parts, .xa = xa, .y = y};
  table.push_back(row<Impl::LoraForward>("lora_residual_forward",
                                         [=](const auto&... exec) { lora_residual_forward(exec..., added); }));
  const LoraBackwardInputOperands backward{
      .weight = weight, .a = a, .parts = parts, .dy = y, .dxa = xa, .dx = dx};
  table.push_back(row<Impl::LoraBackwardInput>(
      "lora_backward_input", [=](const auto&... exec) { lora_backward_input(exec..., backward); }));
}

template <class T>
void add_swiglu(std::vector<PublicFunction>& table, const Extents& e) {
  const Matrix<T> gate("gate", e.rows, e.in), up("up", e.rows, e.in), y("y", e.rows, e.in),
      dgate("dgate", e.rows, e.in), dup("dup", e.rows, e.in);
  table.push_back(row<Impl::SwigluForward>("swiglu_forward",
                                           [=](const auto&... exec) { swiglu_forward(exec..., gate, up, y); }));
  table.push_back(row<Impl::SwigluBackward>(
      "swiglu_backward", [=](const auto&... exec) { swiglu_backward(exec..., gate, up, y, dgate, dup); }));
}

/// Composed of the products and of swiglu: it has no kernel list.
template <class T>
void add_swiglu_mlp(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const SwigluMlpBackwardOperands all{.x = Matrix<T>("x", e.rows, e.in),
                                      .weight_gate_up = Matrix<T>("weight_gate_up", 2 * e.out, e.in),
                                      .weight_down = Matrix<T>("weight_down", e.in, e.out),
                                      .gate_up = Matrix<T>("gate_up", e.rows, 2 * e.out),
                                      .product = Matrix<T>("product", e.rows, e.out),
                                      .dy = Matrix<T>("dy", e.rows, e.in),
                                      .dproduct = Matrix<T>("dproduct", e.rows, e.out),
                                      .dgate_up = Matrix<T>("dgate_up", e.rows, 2 * e.out),
                                      .dx = Matrix<T>("dx", e.rows, e.in),
                                      .dweight_gate_up = Matrix<C>("dweight_gate_up", 2 * e.out, e.in),
                                      .dweight_down = Matrix<C>("dweight_down", e.in, e.out)};
  const SwigluMlpForwardOperands forward{.x = all.x,
                                         .weight_gate_up = all.weight_gate_up,
                                         .weight_down = all.weight_down,
                                         .gate_up = all.gate_up,
                                         .product = all.product,
                                         .y = all.dx};
  table.push_back(row<Impl::LinearForward>("swiglu_mlp_forward",
                                           [=](const auto&... exec) { swiglu_mlp_forward(exec..., forward); }));
  table.push_back(row<Impl::LinearBackwardWeight>(
      "swiglu_mlp_backward", [=](const auto&... exec) { swiglu_mlp_backward(exec..., all); }));
}

template <class T>
void add_standard_attention(std::vector<PublicFunction>& table, const Extents& e) {
  const Heads<T> q("q", 2, e.rows, 4, e.head_dim), k("k", 2, e.rows, 2, e.head_dim),
      v("v", 2, e.rows, 2, e.head_dim), out("out", 2, e.rows, 4, e.head_dim);
  const Heads<T> mask("mask", 1, 1, e.rows, e.rows), probabilities("probabilities", 2, 4, e.rows, e.rows);
  const Heads<T> dq("dq", 2, e.rows, 4, e.head_dim), dk("dk", 2, e.rows, 2, e.head_dim),
      dv("dv", 2, e.rows, 2, e.head_dim);
  const auto bytes = workspace(standard_attention_backward_workspace_bytes<T>(Exec(), 2, 4, e.rows, e.rows));
  table.push_back(row<Impl::StandardAttentionForward>("standard_attention_forward", [=](const auto&... exec) {
    standard_attention_forward(exec..., q, k, v, out, probabilities);
  }));
  const StandardAttentionMaskedForwardOperands masked{
      .q = q, .k = k, .v = v, .mask = mask, .out = out, .probabilities = probabilities};
  table.push_back(row<Impl::StandardAttentionForward>(
      "standard_attention_masked_forward",
      [=](const auto&... exec) { standard_attention_masked_forward(exec..., masked); }));
  const StandardAttentionBackwardOperands backward{
      .q = q, .k = k, .v = v, .probabilities = probabilities, .dout = out, .dq = dq, .dk = dk, .dv = dv};
  table.push_back(row<Impl::StandardAttentionBackward>("standard_attention_backward", [=](const auto&... exec) {
    standard_attention_backward(exec..., backward, {}, bytes);
  }));
}

template <class T>
void add_attention(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const Heads<T> q("q", 2, e.rows, 4, e.head_dim), k("k", 2, e.rows, 2, e.head_dim),
      v("v", 2, e.rows, 2, e.head_dim), out("out", 2, e.rows, 4, e.head_dim);
  const Heads<T> bias("bias", 1, 1, e.rows, e.rows), dq("dq", 2, e.rows, 4, e.head_dim),
      dk("dk", 2, e.rows, 2, e.head_dim), dv("dv", 2, e.rows, 2, e.head_dim);
  const Heads<T> dbias("dbias", 1, 1, e.rows, e.rows);
  const Vector<T> sinks("sinks", 4);
  const Vector<C> slopes("slopes", 4), dsinks("dsinks", 4);
  const Kokkos::View<C***, Kokkos::LayoutRight, Memory> lse("lse", 2, 4, e.rows);
  // Made in each call: the Views keep the memory, extras do not.
  const auto extras = [=] { return AttentionExtras<Exec>().bias(bias).sinks(sinks).alibi_slopes(slopes); };
  const auto gradients = [=] { return AttentionExtraGradients<Exec>().bias(dbias).sinks(dsinks); };
  // Enough for any kernel of the list.
  const auto bytes = workspace(std::size_t(e.times) << 20);
  const AttentionBackwardOperands operands{
      .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = dq, .dk = dk, .dv = dv};
  table.push_back(row<Impl::AttentionForward>("attention_forward", [=](const auto&... exec) {
    attention_forward(exec..., q, k, v, out, lse, {}, {}, bytes);
  }));
  table.push_back(row<Impl::AttentionForward>("attention_forward with extras", [=](const auto&... exec) {
    attention_forward(exec..., q, k, v, out, lse, {}, extras(), bytes);
  }));
  table.push_back(row<Impl::AttentionForward>("attention_forward with a functor", [=](const auto&... exec) {
    attention_forward(exec..., q, k, v, out, lse, LastThreeKeys(), {}, {}, bytes);
  }));
  table.push_back(row<Impl::AttentionBackward>("attention_backward", [=](const auto&... exec) {
    attention_backward(exec..., operands, {}, {}, {}, bytes);
  }));
  table.push_back(row<Impl::AttentionBackward>("attention_backward with extras", [=](const auto&... exec) {
    attention_backward(exec..., operands, {}, extras(), gradients(), bytes);
  }));
  table.push_back(row<Impl::AttentionBackward>("attention_backward with a functor", [=](const auto&... exec) {
    attention_backward(exec..., operands, LastThreeKeys(), {}, {}, {}, bytes);
  }));
}

}  // namespace kformer::Testing
