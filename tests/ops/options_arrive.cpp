// SPDX-License-Identifier: MIT
// Options, extras and gradients arrive where they are checked, by way of each overload of each public function.
#include <limits>
#include <string>

#include "kformer/core/error.hpp"
#include "kformer/ops/adamw.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/quantized.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/public_function.hpp"

namespace kformer::Testing {
namespace {

/// `call` with an instance and without one is refused, in a text of the function that names what is wrong.
template <class F>
void check_arrives(const std::string& function, const std::string& named, F call) {
  const auto error = [&](const auto&... exec) {
    try {
      call(exec...);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  for (const std::string& text : {error(Exec()), error()}) {
    BOOST_TEST(text.starts_with("kformer::" + function + ": "), function << ": " << text);
    BOOST_TEST((text.find(named) != text.npos), function << ": " << text);
  }
}

constexpr double infinity = std::numeric_limits<double>::infinity();
const LinearOptions scaled{.scale = infinity};
const AttentionOptions hidden{.window = -1};

}  // namespace

BOOST_AUTO_TEST_SUITE(options_arrive)

BOOST_AUTO_TEST_CASE(of_products) {
  const Matrix<float> x("x", 5, 12), weight("weight", 8, 12), y("y", 5, 8), dx("dx", 5, 12),
      residual("r", 5, 8), product("product", 5, 4), dweight("dweight", 8, 12), cos("cos", 9, 2),
      sin("sin", 9, 2);
  const Vector<float> bias("bias", 8);
  const std::string scale = "scale must be finite";
  check_arrives("linear_forward", scale, [=](const auto&... e) { linear_forward(e..., x, weight, y, scaled); });
  check_arrives("linear_bias_forward", scale,
                [=](const auto&... e) { linear_bias_forward(e..., x, weight, bias, y, scaled); });
  check_arrives("linear_residual_forward", scale,
                [=](const auto&... e) { linear_residual_forward(e..., x, weight, residual, y, scaled); });
  check_arrives("linear_backward_input", scale,
                [=](const auto&... e) { linear_backward_input(e..., weight, y, dx, scaled); });
  check_arrives("linear_backward_weight", scale,
                [=](const auto&... e) { linear_backward_weight(e..., x, y, dweight, scaled); });
  check_arrives("linear_backward", scale,
                [=](const auto&... e) { linear_backward(e..., x, weight, y, dx, dweight, scaled); });
  check_arrives("linear_swiglu_forward", scale,
                [=](const auto&... e) { linear_swiglu_forward(e..., x, weight, y, product, scaled); });
  const LinearRopeOptions many{.heads = 3, .seq_len = 5};
  check_arrives("linear_rope_forward", "3 heads of 4",
                [=](const auto&... e) { linear_rope_forward(e..., x, weight, cos, sin, y, many); });
  const LinearBiasRopeForwardOperands biased{
      .x = x, .weight = weight, .bias = bias, .cos = cos, .sin = sin, .y = y};
  check_arrives("linear_bias_rope_forward", "3 heads of 4",
                [=](const auto&... e) { linear_bias_rope_forward(e..., biased, many); });
}

BOOST_AUTO_TEST_CASE(of_packed_weights) {
  const Matrix<float> x("x", 5, 64), y("y", 5, 7), residual("residual", 5, 7), dx("dx", 5, 64),
      weight("weight", 7, 64), dweight("dweight", 7, 64);
  const Vector<std::byte> bytes("bytes", quantized_bytes(QuantizedFormat::q8_0, 7, 64));
  const QuantizedMatrix packed{QuantizedFormat::q8_0, bytes.data(), 7, 64};
  const std::string scale = "scale must be finite", format = "the format must be TQ2_0 or TQ1_0, got Q8_0";
  check_arrives("quantized_linear_forward", scale,
                [=](const auto&... e) { quantized_linear_forward(e..., x, packed, y, {.scale = infinity}); });
  check_arrives("quantized_linear_residual_forward", scale, [=](const auto&... e) {
    quantized_linear_residual_forward(e..., x, packed, residual, y, {.scale = infinity});
  });
  check_arrives("quantized_linear_backward_input", scale,
                [=](const auto&... e) { quantized_linear_backward_input(e..., packed, y, dx, scaled); });
  const TernaryLinearOptions other{.format = QuantizedFormat::q8_0};
  check_arrives("ternary_linear_forward", format,
                [=](const auto&... e) { ternary_linear_forward(e..., x, weight, y, other); });
  check_arrives("ternary_linear_backward", format,
                [=](const auto&... e) { ternary_linear_backward(e..., x, weight, y, dx, dweight, other); });
}

BOOST_AUTO_TEST_CASE(of_rows) {
  const Matrix<float> x("x", 5, 12), y("y", 5, 12), sum("sum", 5, 12), cos("cos", 9, 4), sin("sin", 9, 4);
  const Vector<float> weight("weight", 12), rstd("rstd", 5);
  const RmsNormOptions negative{.eps = -1};
  const std::string eps = "eps must not be negative";
  check_arrives("rms_norm_forward", eps,
                [=](const auto&... e) { rms_norm_forward(e..., x, weight, y, rstd, negative); });
  const RmsNormResidualForwardOperands added{
      .x = x, .residual = x, .weight = weight, .sum = sum, .y = y, .rstd = rstd};
  check_arrives("rms_norm_residual_forward", eps,
                [=](const auto&... e) { rms_norm_residual_forward(e..., added, negative); });
  const Tokens<float> heads("heads", 5, 2, 12), keys("keys", 5, 1, 12);
  const QkNormForwardOperands both{.q = heads,
                                   .k = keys,
                                   .q_weight = weight,
                                   .k_weight = weight,
                                   .q_out = heads,
                                   .k_out = keys,
                                   .q_rstd = Matrix<float>("q_rstd", 5, 2),
                                   .k_rstd = Matrix<float>("k_rstd", 5, 1)};
  check_arrives("qk_norm_forward", eps, [=](const auto&... e) { qk_norm_forward(e..., both, negative); });
  check_arrives("rope_tables", "theta must be positive",
                [=](const auto&... e) { rope_tables(e..., cos, sin, {.theta = -1}); });
  const Heads<float> q("q", 1, 5, 2, 8), k("k", 1, 5, 1, 8);
  const Matrix<std::int32_t> positions("positions", 1, 5);
  constexpr auto layout = static_cast<RopeLayout>(7);
  check_arrives("rope_forward", "layout",
                [=](const auto&... e) { rope_forward(e..., q, k, cos, sin, 0, layout); });
  check_arrives("rope_forward", "layout",
                [=](const auto&... e) { rope_forward(e..., q, k, cos, sin, positions, layout); });
  check_arrives("rope_backward", "layout",
                [=](const auto&... e) { rope_backward(e..., q, k, cos, sin, 0, layout); });
}

BOOST_AUTO_TEST_CASE(of_losses_and_draws) {
  const auto all = linear_cross_entropy_operands<float>();
  const LinearCrossEntropyOptions negative{.cross_entropy = {.z_loss = -1}};
  check_arrives("linear_cross_entropy", "z_loss", [=](const auto&... e) {
    linear_cross_entropy(e..., all.x, all.weight, all.targets, all.loss, negative);
  });
  check_arrives("linear_cross_entropy", "z_loss",
                [=](const auto&... e) { linear_cross_entropy(e..., all, negative); });
  const Vector<float> lse("lse", 5);
  check_arrives("cross_entropy_forward", "z_loss", [=](const auto&... e) {
    cross_entropy_forward(e..., all.x, all.targets, all.loss, lse, {.z_loss = -1});
  });
  check_arrives("cross_entropy_backward", "z_loss", [=](const auto&... e) {
    cross_entropy_backward(e..., all.x, all.targets, lse, all.dloss, all.dx, {.z_loss = -1});
  });
  const auto drawn = sample_operands<float>();
  check_arrives("sample", "top_k", [=](const auto&... e) { sample(e..., drawn, {.top_k = -1}); });
  check_arrives("sample", "top_k", [=](const auto&... e) {
    sample(e..., drawn.logits, drawn.positions, drawn.tokens, drawn.log_probabilities, {.top_k = -1});
  });
  const Vector<float> weight("weight", 3), gradient("gradient", 3), m("m", 3), v("v", 3), norm("norm", 1);
  const auto parameters = [=] {
    return std::vector<AdamWParameter>{{.weight = tensor_ref(weight),
                                        .gradient = tensor_ref(gradient),
                                        .m = tensor_ref(m),
                                        .v = tensor_ref(v)}};
  };
  check_arrives("adamw", "steps count from 1",
                [=](const auto&... e) { adamw(e..., parameters(), {.step = 0}); });
  check_arrives("adamw", "steps count from 1",
                [=](const auto&... e) { adamw(e..., parameters(), norm, {.step = 0}); });
}

BOOST_AUTO_TEST_CASE(of_attention) {
  const Heads<float> q("q", 1, 5, 4, 8), k("k", 1, 5, 2, 8), v("v", 1, 5, 2, 8), out("out", 1, 5, 4, 8),
      dq("dq", 1, 5, 4, 8), dk("dk", 1, 5, 2, 8), dv("dv", 1, 5, 2, 8), p("p", 1, 4, 5, 5),
      mask("mask", 1, 1, 5, 5);
  const Tokens<float> lse("lse", 1, 4, 5);
  const Vector<float> three("three", 3), sinks("sinks", 4);
  const AttentionBackwardOperands operands{
      .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = dq, .dk = dk, .dv = dv};
  // Made in each call: the Views keep the memory, extras do not.
  const auto wrong = [=] { return AttentionExtras<Exec>().sinks(three); };
  const auto right = [=] { return AttentionExtras<Exec>().sinks(sinks); };
  const auto gradients = [=] { return AttentionExtraGradients<Exec>().sinks(three); };
  const std::string window = "window must not be negative", extents = " sinks[3]", gradient = " dsinks[3]";
  const LastThreeKeys functor;
  check_arrives("attention_forward", window,
                [=](const auto&... e) { attention_forward(e..., q, k, v, out, lse, hidden); });
  check_arrives("attention_forward", extents,
                [=](const auto&... e) { attention_forward(e..., q, k, v, out, lse, {}, wrong()); });
  check_arrives("attention_forward", window,
                [=](const auto&... e) { attention_forward(e..., q, k, v, out, lse, functor, hidden); });
  check_arrives("attention_forward", extents,
                [=](const auto&... e) { attention_forward(e..., q, k, v, out, lse, functor, {}, wrong()); });
  check_arrives("attention_backward", window,
                [=](const auto&... e) { attention_backward(e..., operands, hidden); });
  check_arrives("attention_backward", extents,
                [=](const auto&... e) { attention_backward(e..., operands, {}, wrong()); });
  check_arrives("attention_backward", gradient,
                [=](const auto&... e) { attention_backward(e..., operands, {}, right(), gradients()); });
  check_arrives("attention_backward", window,
                [=](const auto&... e) { attention_backward(e..., operands, functor, hidden); });
  check_arrives("attention_backward", extents,
                [=](const auto&... e) { attention_backward(e..., operands, functor, {}, wrong()); });
  check_arrives("attention_backward", gradient, [=](const auto&... e) {
    attention_backward(e..., operands, functor, {}, right(), gradients());
  });
  const StandardAttentionMaskedForwardOperands masked{
      .q = q, .k = k, .v = v, .mask = mask, .out = out, .probabilities = p};
  const StandardAttentionBackwardOperands backward{
      .q = q, .k = k, .v = v, .probabilities = p, .dout = out, .dq = dq, .dk = dk, .dv = dv};
  check_arrives("standard_attention_forward", window,
                [=](const auto&... e) { standard_attention_forward(e..., q, k, v, out, p, hidden); });
  check_arrives("standard_attention_masked_forward", window,
                [=](const auto&... e) { standard_attention_masked_forward(e..., masked, hidden); });
  check_arrives("standard_attention_backward", window,
                [=](const auto&... e) { standard_attention_backward(e..., backward, hidden); });
}

BOOST_AUTO_TEST_CASE(of_caches) {
  const Tokens<float> k("k", 5, 2, 8), cache("cache", 12, 2, 8), v_cache("v_cache", 12, 2, 8), v("v", 5, 2, 8),
      q("q", 5, 4, 8), bias("bias", 4, 5, 12), masses("masses", 2, 2, 12);
  const Matrix<float> lse("lse", 4, 5), mass("mass", 2, 12);
  const Matrix<std::int32_t> positions("positions", 2, 12);
  const Tokens<std::int32_t> kept("kept", 2, 2, 5);
  const Vector<std::int32_t> pages("pages", 5);
  check_arrives("kv_gather", "page_tokens must be positive",
                [=](const auto&... e) { kv_gather(e..., cache, v_cache, pages, k, v, 0); });
  check_arrives("kv_attention_mass", "window must not be negative",
                [=](const auto&... e) { kv_attention_mass(e..., q, cache, lse, positions, mass, hidden); });
  check_arrives("kv_heavy_hitters", "got 6",
                [=](const auto&... e) { kv_heavy_hitters(e..., masses, kept, 6); });
  check_arrives("kv_mask", "sinks must not be negative",
                [=](const auto&... e) { kv_mask(e..., positions, bias, {.sinks = -1}); });
}

BOOST_AUTO_TEST_CASE(of_workspaces) {
  const AttentionShape shape{DType::f32, 1, 3, 5, 4, 2, 8, 8};
  const LastThreeKeys functor;
  check_arrives("attention_forward", "window",
                [=](const auto&... e) { attention_forward_workspace_bytes(e..., shape, hidden); });
  check_arrives("attention_backward", "window",
                [=](const auto&... e) { attention_backward_workspace_bytes(e..., shape, hidden); });
  check_arrives("attention_forward", "window",
                [=](const auto&... e) { attention_forward_workspace_bytes(e..., shape, functor, hidden); });
  check_arrives("attention_backward", "window",
                [=](const auto&... e) { attention_backward_workspace_bytes(e..., shape, functor, hidden); });
  check_arrives("sample", "top_k",
                [=](const auto&... e) { sample_workspace_bytes<float>(e..., 5, 12, true, {.top_k = -1}); });
  check_arrives("linear_cross_entropy", "chunk_rows must not be negative", [=](const auto&... e) {
    linear_cross_entropy_workspace_bytes<float>(e..., 5, 12, {.chunk_rows = -1});
  });
  // TQ1_0 packs more codes into a byte.
  constexpr TernaryLinearOptions dense{.format = QuantizedFormat::tq1_0};
  const Exec exec;
  const std::size_t forward = ternary_linear_forward_workspace_bytes<float>(exec, 500, 2560, 700, dense),
                    backward = ternary_linear_backward_workspace_bytes<float>(exec, 500, 2560, 700, dense);
  BOOST_TEST(forward < ternary_linear_forward_workspace_bytes<float>(exec, 500, 2560, 700));
  BOOST_TEST(backward < ternary_linear_backward_workspace_bytes<float>(exec, 500, 2560, 700));
  BOOST_TEST(ternary_linear_forward_workspace_bytes<float>(500, 2560, 700, dense) == forward);
  BOOST_TEST(ternary_linear_backward_workspace_bytes<float>(500, 2560, 700, dense) == backward);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
