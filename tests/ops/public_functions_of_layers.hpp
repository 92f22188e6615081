// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/attention.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/linear_epilogues.hpp"
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
void add_rms_norm(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), residual("residual", 5, 12), sum("sum", 5, 12), y("y", 5, 12);
  const Vector<T> weight("weight", 12);
  const Vector<C> rstd("rstd", 5), dweight("dweight", 12);
  const auto bytes = workspace(rms_norm_backward_workspace_bytes<T>(Exec(), 5, 12));
  table.push_back(row<Impl::RmsNormForward>(
      "rms_norm_forward", [=](const auto&... exec) { rms_norm_forward(exec..., x, weight, y, rstd); }));
  const RmsNormResidualForwardOperands added{
      .x = x, .residual = residual, .weight = weight, .sum = sum, .y = y, .rstd = rstd};
  table.push_back(row<Impl::RmsNormForward>(
      "rms_norm_residual_forward", [=](const auto&... exec) { rms_norm_residual_forward(exec..., added); }));
  const Tokens<T> q("q", 5, 4, 12), k("k", 5, 2, 12);
  const QkNormForwardOperands heads{.q = q,
                                    .k = k,
                                    .q_weight = weight,
                                    .k_weight = Vector<T>("k_weight", 12),
                                    .q_out = q,
                                    .k_out = k,
                                    .q_rstd = Matrix<C>("q_rstd", 5, 4),
                                    .k_rstd = Matrix<C>("k_rstd", 5, 2)};
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
void add_rope(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<C> cos("cos", 5, 4), sin("sin", 5, 4);
  const Heads<T> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8);
  const Matrix<std::int32_t> positions("positions", 2, 5);
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
void add_linear(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const Matrix<T> x("x", 5, 12), weight("weight", 7, 12), y("y", 5, 7), residual("residual", 5, 7);
  const Vector<T> bias("bias", 7);
  const Matrix<C> dweight("dweight", 7, 12);
  const Vector<C> dbias("dbias", 7);
  table.push_back(row<Impl::LinearForward>(
      "linear_forward", [=](const auto&... exec) { linear_forward(exec..., x, weight, y); }));
  table.push_back(row<Impl::LinearForward>(
      "linear_bias_forward", [=](const auto&... exec) { linear_bias_forward(exec..., x, weight, bias, y); }));
  table.push_back(row<Impl::LinearForward>("linear_residual_forward", [=](const auto&... exec) {
    linear_residual_forward(exec..., x, weight, residual, y);
  }));
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward_input", [=](const auto&... exec) { linear_backward_input(exec..., weight, y, x); }));
  const Matrix<T> weight_gate_up("weight_gate_up", 14, 12), gate_up("gate_up", 5, 14);
  const Matrix<C> cos("cos", 9, 3), sin("sin", 9, 3);
  table.push_back(row<Impl::LinearSwigluForward>("linear_swiglu_forward", [=](const auto&... exec) {
    linear_swiglu_forward(exec..., x, weight_gate_up, gate_up, y);
  }));
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward", [=](const auto&... exec) {
    linear_rope_forward(exec..., x, weight, cos, sin, y, {.heads = 1, .seq_len = 5});
  }));
  const LinearBiasRopeForwardOperands biased{
      .x = x, .weight = weight, .bias = bias, .cos = cos, .sin = sin, .y = y};
  table.push_back(row<Impl::LinearRopeForward>("linear_rope_forward with a bias", [=](const auto&... exec) {
    linear_bias_rope_forward(exec..., biased, {.heads = 1, .seq_len = 5});
  }));
  const Kokkos::View<T***, Kokkos::LayoutRight, Exec> xs("xs", 2, 5, 12), weights("weights", 2, 7, 12),
      ys("ys", 2, 5, 7);
  table.push_back(row<Impl::LinearForward>(
      "linear_forward of a batch", [=](const auto&... exec) { linear_forward(exec..., xs, weights, ys); }));
  table.push_back(row<Impl::LinearBackwardWeight>(
      "linear_backward_weight", [=](const auto&... exec) { linear_backward_weight(exec..., x, y, dweight); }));
  const Matrix<T> dx("dx", 5, 12);
  table.push_back(row<Impl::LinearBackwardInput>(
      "linear_backward", [=](const auto&... exec) { linear_backward(exec..., x, weight, y, dx, dweight); }));
  table.push_back(row<Impl::LinearBackwardBias>(
      "linear_backward_bias", [=](const auto&... exec) { linear_backward_bias(exec..., y, dbias); }));
}

template <class T>
void add_swiglu(std::vector<PublicFunction>& table) {
  const Matrix<T> gate("gate", 5, 12), up("up", 5, 12), y("y", 5, 12), dgate("dgate", 5, 12), dup("dup", 5, 12);
  table.push_back(row<Impl::SwigluForward>("swiglu_forward",
                                           [=](const auto&... exec) { swiglu_forward(exec..., gate, up, y); }));
  table.push_back(row<Impl::SwigluBackward>(
      "swiglu_backward", [=](const auto&... exec) { swiglu_backward(exec..., gate, up, y, dgate, dup); }));
}

/// Composed of the products and of swiglu: it has no kernel list.
template <class T>
void add_swiglu_mlp(std::vector<PublicFunction>& table) {
  using C = compute_t<T>;
  const SwigluMlpBackwardOperands all{.x = Matrix<T>("x", 5, 12),
                                      .weight_gate_up = Matrix<T>("weight_gate_up", 14, 12),
                                      .weight_down = Matrix<T>("weight_down", 12, 7),
                                      .gate_up = Matrix<T>("gate_up", 5, 14),
                                      .product = Matrix<T>("product", 5, 7),
                                      .dy = Matrix<T>("dy", 5, 12),
                                      .dproduct = Matrix<T>("dproduct", 5, 7),
                                      .dgate_up = Matrix<T>("dgate_up", 5, 14),
                                      .dx = Matrix<T>("dx", 5, 12),
                                      .dweight_gate_up = Matrix<C>("dweight_gate_up", 14, 12),
                                      .dweight_down = Matrix<C>("dweight_down", 12, 7)};
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
void add_standard_attention(std::vector<PublicFunction>& table) {
  const Heads<T> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8), v("v", 2, 5, 2, 8), out("out", 2, 5, 4, 8);
  const Heads<T> mask("mask", 1, 1, 5, 5), probabilities("probabilities", 2, 4, 5, 5);
  const Heads<T> dq("dq", 2, 5, 4, 8), dk("dk", 2, 5, 2, 8), dv("dv", 2, 5, 2, 8);
  const auto bytes = workspace(standard_attention_backward_workspace_bytes<T>(Exec(), 2, 4, 5, 5));
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
