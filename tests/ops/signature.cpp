// SPDX-License-Identifier: MIT
// What all public functions share: each is called without an instance; each that takes a workspace has a twin
// `<function>_workspace_bytes`, which is what its error texts name, and refuses a workspace that is not aligned.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/sampling.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/public_function.hpp"

namespace kformer::Testing {
namespace {

using Ids = Vector<std::int32_t>;

struct Call {
  const char* function;
  std::function<void(const Workspace&)> run;
};

// A using-declaration names a function only if there is one.
#define KFORMER_TWIN(function)                 \
  [] {                                         \
    using kformer::function##_workspace_bytes; \
    return std::string("kformer::" #function); \
  }()

const std::set<std::string> twins = {KFORMER_TWIN(attention_forward),
                                     KFORMER_TWIN(attention_backward),
                                     KFORMER_TWIN(gradient_norm),
                                     KFORMER_TWIN(linear_forward),
                                     KFORMER_TWIN(linear_bias_forward),
                                     KFORMER_TWIN(linear_residual_forward),
                                     KFORMER_TWIN(linear_backward_input),
                                     KFORMER_TWIN(linear_backward_weight),
                                     KFORMER_TWIN(linear_backward),
                                     KFORMER_TWIN(linear_swiglu_forward),
                                     KFORMER_TWIN(linear_rope_forward),
                                     KFORMER_TWIN(linear_bias_rope_forward),
                                     KFORMER_TWIN(linear_cross_entropy),
                                     KFORMER_TWIN(quantized_linear_forward),
                                     KFORMER_TWIN(quantized_linear_residual_forward),
                                     KFORMER_TWIN(rms_norm_backward),
                                     KFORMER_TWIN(rms_norm_residual_backward),
                                     KFORMER_TWIN(sample),
                                     KFORMER_TWIN(standard_attention_backward),
                                     KFORMER_TWIN(ternary_quantize),
                                     KFORMER_TWIN(ternary_linear_forward),
                                     KFORMER_TWIN(ternary_linear_backward)};

std::vector<Call> with_linear_workspace() {
  const Matrix<float> x("x", 5, 12), weight("weight", 7, 12), y("y", 5, 7), residual("residual", 5, 7);
  const Matrix<float> weight_gate_up("weight_gate_up", 14, 12), gate_up("gate_up", 5, 14);
  const Matrix<float> cos("cos", 9, 3), sin("sin", 9, 3), dx("dx", 5, 12), dweight("dweight", 7, 12);
  const Vector<float> bias("bias", 7), loss("loss", 5), dloss("dloss", 5);
  const Ids targets("targets", 5);
  const LinearRopeOptions rope{.heads = 1, .seq_len = 5};
  return {{"linear_forward", [=](const Workspace& w) { linear_forward(x, weight, y, {}, w); }},
          {"linear_bias_forward", [=](const Workspace& w) { linear_bias_forward(x, weight, bias, y, {}, w); }},
          {"linear_residual_forward",
           [=](const Workspace& w) { linear_residual_forward(x, weight, residual, y, {}, w); }},
          {"linear_backward_input", [=](const Workspace& w) { linear_backward_input(weight, y, dx, {}, w); }},
          {"linear_backward_weight", [=](const Workspace& w) { linear_backward_weight(x, y, dweight, {}, w); }},
          {"linear_backward_input",  // the first half of linear_backward
           [=](const Workspace& w) { linear_backward(x, weight, y, dx, dweight, {}, w); }},
          {"linear_swiglu_forward",
           [=](const Workspace& w) { linear_swiglu_forward(x, weight_gate_up, gate_up, y, {}, w); }},
          {"linear_rope_forward",
           [=](const Workspace& w) { linear_rope_forward(x, weight, cos, sin, y, rope, w); }},
          {"linear_bias_rope_forward",
           [=](const Workspace& w) {
             linear_bias_rope_forward(
                 LinearBiasRopeForwardOperands{
                     .x = x, .weight = weight, .bias = bias, .cos = cos, .sin = sin, .y = y},
                 rope, w);
           }},
          {"linear_cross_entropy",
           [=](const Workspace& w) { linear_cross_entropy(x, weight, targets, loss, {}, w); }},
          {"linear_cross_entropy", [=](const Workspace& w) {
             linear_cross_entropy(LinearCrossEntropyOperands{.x = x,
                                                             .weight = weight,
                                                             .targets = targets,
                                                             .dloss = dloss,
                                                             .loss = loss,
                                                             .dx = dx,
                                                             .dweight = dweight},
                                  {}, w);
           }}};
}

std::vector<Call> with_attention_workspace() {
  const Heads<float> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8), v("v", 2, 5, 2, 8), out("out", 2, 5, 4, 8);
  const Heads<float> dq("dq", 2, 5, 4, 8), dk("dk", 2, 5, 2, 8), dv("dv", 2, 5, 2, 8), p("p", 2, 4, 5, 5);
  const Tokens<float> lse("lse", 2, 4, 5);
  const AttentionBackwardOperands operands{
      .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = dq, .dk = dk, .dv = dv};
  return {{"attention_forward", [=](const Workspace& w) { attention_forward(q, k, v, out, lse, {}, {}, w); }},
          {"attention_forward",
           [=](const Workspace& w) { attention_forward(q, k, v, out, lse, LastThreeKeys(), {}, {}, w); }},
          {"attention_backward", [=](const Workspace& w) { attention_backward(operands, {}, {}, {}, w); }},
          {"attention_backward",
           [=](const Workspace& w) { attention_backward(operands, LastThreeKeys(), {}, {}, {}, w); }},
          {"standard_attention_backward", [=](const Workspace& w) {
             standard_attention_backward(
                 StandardAttentionBackwardOperands{
                     .q = q, .k = k, .v = v, .probabilities = p, .dout = out, .dq = dq, .dk = dk, .dv = dv},
                 {}, w);
           }}};
}

std::vector<Call> with_other_workspace() {
  const Matrix<float> x("x", 5, 64), weight("weight", 7, 64), y("y", 5, 7), residual("residual", 5, 7);
  const Matrix<float> dx("dx", 5, 64), dweight("dweight", 7, 64), dy("dy", 5, 64), logits("logits", 5, 12);
  const Vector<float> scale("scale", 64), rstd("rstd", 5), dscale("dscale", 64), norm("norm", 1);
  const Vector<float> log_probabilities("log_probabilities", 5);
  const Ids positions("positions", 5), tokens("tokens", 5), lengths("lengths", 5);
  const Matrix<std::int32_t> history("history", 5, 3);
  const Vector<std::byte> bytes("bytes", quantized_bytes(QuantizedFormat::tq2_0, 7, 64));
  const auto packed = [=] { return QuantizedOutput{QuantizedFormat::tq2_0, bytes.data(), 7, 64}; };
  return {
      {"rms_norm_backward",
       [=](const Workspace& w) {
         rms_norm_backward(
             RmsNormBackwardOperands{
                 .x = x, .weight = scale, .rstd = rstd, .dy = dy, .dx = dx, .dweight = dscale},
             w);
       }},
      {"rms_norm_residual_backward",
       [=](const Workspace& w) {
         rms_norm_residual_backward(
             RmsNormResidualBackwardOperands{
                 .sum = x, .weight = scale, .rstd = rstd, .dy = dy, .dsum = dy, .dx = dx, .dweight = dscale},
             w);
       }},
      {"quantized_linear_forward",
       [=](const Workspace& w) { quantized_linear_forward(x, packed(), y, {}, w); }},
      {"quantized_linear_residual_forward",
       [=](const Workspace& w) { quantized_linear_residual_forward(x, packed(), residual, y, {}, w); }},
      {"ternary_quantize", [=](const Workspace& w) { ternary_quantize(weight, packed(), w); }},
      {"ternary_linear_forward", [=](const Workspace& w) { ternary_linear_forward(x, weight, y, {}, w); }},
      {"ternary_linear_backward",
       [=](const Workspace& w) { ternary_linear_backward(x, weight, y, dx, dweight, {}, w); }},
      {"sample", [=](const Workspace& w) { sample(logits, positions, tokens, log_probabilities, {}, w); }},
      {"sample",
       [=](const Workspace& w) {
         sample(SampleOperands{.logits = logits,
                               .history = history,
                               .history_lengths = lengths,
                               .positions = positions,
                               .tokens = tokens,
                               .log_probabilities = log_probabilities},
                {}, w);
       }},
      {"gradient_norm", [=](const Workspace& w) {
         const std::vector<AdamWParameter> parameters = {{.weight = tensor_ref(x), .gradient = tensor_ref(dx)}};
         gradient_norm(parameters, norm, w);
       }}};
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const DimensionMismatch& error) {
    return error.what();
  }
  return {};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(signature)

BOOST_AUTO_TEST_CASE(a_workspace_that_is_not_aligned_is_refused_and_errors_name_functions_that_exist) {
  const Vector<std::byte> bytes("bytes", 4096);
  Workspace odd;
  odd.data = bytes.data() + 4;
  odd.bytes = std::size_t(64) << 20;  // never touched
  std::set<std::string> called;
  for (const auto& calls : {with_linear_workspace(), with_attention_workspace(), with_other_workspace()})
    for (const Call& call : calls) {
      const std::string start = "kformer::" + std::string(call.function);
      const std::string text = error_of([&] { call.run(odd); });
      BOOST_TEST(text.starts_with(start + ": the workspace begins at "), call.function << ": " << text);
      const std::string named = text.substr(0, text.find(": "));
      BOOST_TEST(twins.contains(named), "no function " << named << "_workspace_bytes");
      called.insert(named);
      // Where some is needed, its lack names the twin.
      const std::string lack = error_of([&] { call.run({}); });
      if (!lack.empty()) BOOST_TEST((lack.find("; ask " + start + "_workspace_bytes: ") != lack.npos), lack);
    }
  Kokkos::fence("kformer::Testing::signature");
  for (const std::string& twin : twins)
    BOOST_TEST((called.contains(twin) || twin == "kformer::linear_backward"), twin << " is not called here");
}

BOOST_AUTO_TEST_CASE(functions_without_a_workspace_run_on_the_default_instance) {
  const Matrix<float> x("x", 5, 12), y("y", 5, 12), dx("dx", 5, 12), other("other", 5, 12);
  const Vector<float> weight("weight", 12), per_row("per_row", 5), loss("loss", 5), bias("bias", 12);
  const Ids ids("ids", 5);
  rms_norm_forward(x, weight, y, per_row);
  rms_norm_residual_forward(RmsNormResidualForwardOperands{
      .x = x, .residual = dx, .weight = weight, .sum = other, .y = y, .rstd = per_row});
  const Tokens<float> q_rows("q_rows", 5, 4, 12), k_rows("k_rows", 5, 2, 12);
  const Matrix<float> q_rstd("q_rstd", 5, 4), k_rstd("k_rstd", 5, 2);
  qk_norm_forward(QkNormForwardOperands{.q = q_rows,
                                        .k = k_rows,
                                        .q_weight = weight,
                                        .k_weight = weight,
                                        .q_out = q_rows,
                                        .k_out = k_rows,
                                        .q_rstd = q_rstd,
                                        .k_rstd = k_rstd});
  linear_backward_bias(x, bias);
  swiglu_forward(x, dx, y);
  swiglu_backward(x, dx, y, other, y);
  embedding_forward(ids, x, y);
  embedding_backward(ids, x, y);
  cross_entropy_forward(x, ids, loss, per_row);
  cross_entropy_backward(x, ids, per_row, loss, y);
  token_log_probabilities(x, ids, loss);
  ternary_activations(x, y);
  const Matrix<float> cos("cos", 5, 4), sin("sin", 5, 4);
  const Heads<float> q("q", 2, 5, 4, 8), k("k", 2, 5, 2, 8), v("v", 2, 5, 2, 8), out("out", 2, 5, 4, 8);
  const Heads<float> p("p", 2, 4, 5, 5), mask("mask", 1, 1, 5, 5);
  const Matrix<std::int32_t> positions("positions", 2, 5);
  rope_tables(cos, sin);
  rope_forward(q, k, cos, sin, 3);
  rope_forward(q, k, cos, sin, positions);
  rope_backward(q, k, cos, sin);
  rope_backward(q, k, cos, sin, positions, RopeLayout::interleaved);
  standard_attention_forward(q, k, v, out, p, {.causal = true});
  standard_attention_masked_forward(StandardAttentionMaskedForwardOperands{
      .q = q, .k = k, .v = v, .mask = mask, .out = out, .probabilities = p});
  const Vector<std::byte> bytes("bytes", quantized_bytes(QuantizedFormat::q8_0, 5, 12));
  const QuantizedOutput packed{QuantizedFormat::q8_0, bytes.data(), 5, 12};
  quantize(x, packed);
  dequantize(packed, y);
  quantized_embedding_forward(ids, packed, y);
  BOOST_CHECK_NO_THROW(Kokkos::fence("kformer::Testing::signature"));
}

BOOST_AUTO_TEST_CASE(functions_of_the_mlp_the_cache_and_the_optimizer_run_on_the_default_instance) {
  const Matrix<float> x("x", 5, 12), up("up", 14, 12), down("down", 12, 7), gate_up("gate_up", 5, 14);
  const Matrix<float> product("product", 5, 7), y("y", 5, 12), dup("dup", 14, 12), ddown("ddown", 12, 7);
  swiglu_mlp_forward(SwigluMlpForwardOperands{
      .x = x, .weight_gate_up = up, .weight_down = down, .gate_up = gate_up, .product = product, .y = y});
  swiglu_mlp_backward(SwigluMlpBackwardOperands{.x = x,
                                                .weight_gate_up = up,
                                                .weight_down = down,
                                                .gate_up = gate_up,
                                                .product = product,
                                                .dy = y,
                                                .dproduct = product,
                                                .dgate_up = gate_up,
                                                .dx = y,
                                                .dweight_gate_up = dup,
                                                .dweight_down = ddown});
  const Tokens<float> k("k", 3, 2, 8), v("v", 3, 2, 8), k_cache("k_cache", 12, 2, 8),
      v_cache("v_cache", 12, 2, 8);
  const Tokens<std::uint8_t> k_codes("k_codes", 3, 2, 8), v_codes("v_codes", 3, 2, 8);
  const Matrix<float> k_scale("k_scale", 3, 2), v_scale("v_scale", 3, 2), lse("lse", 4, 3), mass("mass", 2, 12);
  const Heads<float> arrays("arrays", 2, 12, 2, 8), others("others", 2, 12, 2, 8);
  const Tokens<float> q("q", 3, 4, 8), bias("bias", 4, 3, 12), masses("masses", 2, 2, 12);
  const Tokens<std::int32_t> kept("kept", 2, 2, 5);
  const Matrix<std::int32_t> positions("positions", 2, 12);
  const Ids slots("slots", 3);
  kv_append(k, v, slots, k_cache, v_cache);
  kv_gather(k_cache, v_cache, slots, k, v, 4);
  kv_copy(arrays, others);
  kv_compact(arrays, kept);
  kv_append_int8(KvAppendInt8Operands{.k = k,
                                      .v = v,
                                      .slots = slots,
                                      .k_codes = k_codes,
                                      .k_scale = k_scale,
                                      .v_codes = v_codes,
                                      .v_scale = v_scale});
  kv_gather_int8(KvGatherInt8Operands{
      .k_codes = k_codes, .k_scale = k_scale, .v_codes = v_codes, .v_scale = v_scale, .k = k, .v = v});
  kv_attention_mass(q, k_cache, lse, positions, mass);
  kv_heavy_hitters(masses, kept, 2);
  kv_mask(positions, bias, {.window = 3});
  const Matrix<float> m("m", 5, 12), second("second", 5, 12), gradient("gradient", 5, 12);
  const Vector<float> norm("norm", 1);
  const std::vector<AdamWParameter> parameters = {{.weight = tensor_ref(x),
                                                   .gradient = tensor_ref(gradient),
                                                   .master = {},
                                                   .m = tensor_ref(m),
                                                   .v = tensor_ref(second)}};
  adamw(parameters);
  adamw(parameters, norm, {.max_norm = 1});
  BOOST_CHECK_NO_THROW(Kokkos::fence("kformer::Testing::signature"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
