// SPDX-License-Identifier: MIT
// What public functions with a workspace share: each is called without an instance, has a twin
// `<function>_workspace_bytes`, which is what its error texts name, and refuses a workspace that is not aligned.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/public_function.hpp"

namespace kformer::Testing {
namespace {

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
                                     KFORMER_TWIN(quantized_linear_backward_input),
                                     KFORMER_TWIN(rms_norm_backward),
                                     KFORMER_TWIN(rms_norm_residual_backward),
                                     KFORMER_TWIN(sample),
                                     KFORMER_TWIN(standard_attention_backward),
                                     KFORMER_TWIN(swiglu_mlp_forward),
                                     KFORMER_TWIN(swiglu_mlp_backward),
                                     KFORMER_TWIN(ternary_quantize),
                                     KFORMER_TWIN(ternary_linear_forward),
                                     KFORMER_TWIN(ternary_linear_backward)};

std::vector<Call> with_linear_workspace() {
  const Matrix<float> x("x", 5, 12), weight("weight", 7, 12), y("y", 5, 7), residual("residual", 5, 7);
  const Matrix<float> weight_gate_up("weight_gate_up", 14, 12), gate_up("gate_up", 5, 14);
  const Matrix<float> cos("cos", 9, 3), sin("sin", 9, 3), dx("dx", 5, 12), dweight("dweight", 7, 12);
  const Vector<float> bias("bias", 7);
  const auto loss = linear_cross_entropy_operands<float>();
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
           [=](const Workspace& w) { linear_cross_entropy(x, weight, loss.targets, loss.loss, {}, w); }},
          {"linear_cross_entropy", [=](const Workspace& w) { linear_cross_entropy(loss, {}, w); }}};
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

std::vector<Call> with_swiglu_workspace() {
  const Matrix<float> x("x", 5, 12), weight_gate_up("weight_gate_up", 14, 12), weight_down("down", 12, 7);
  const Matrix<float> gate_up("gate_up", 5, 14), product("product", 5, 7), y("y", 5, 12), dy("dy", 5, 12);
  const Matrix<float> dweight_gate_up("dweight_gate_up", 14, 12), dweight_down("dweight_down", 12, 7);
  const SwigluMlpForwardOperands forward{.x = x,
                                         .weight_gate_up = weight_gate_up,
                                         .weight_down = weight_down,
                                         .gate_up = gate_up,
                                         .product = product,
                                         .y = y};
  const SwigluMlpBackwardOperands backward{.x = x,
                                           .weight_gate_up = weight_gate_up,
                                           .weight_down = weight_down,
                                           .gate_up = gate_up,
                                           .product = product,
                                           .dy = dy,
                                           .dproduct = product,
                                           .dgate_up = gate_up,
                                           .dx = y,
                                           .dweight_gate_up = dweight_gate_up,
                                           .dweight_down = dweight_down};
  return {{"swiglu_mlp_forward", [=](const Workspace& w) { swiglu_mlp_forward(forward, w); }},
          {"swiglu_mlp_backward", [=](const Workspace& w) { swiglu_mlp_backward(backward, w); }}};
}

std::vector<Call> with_other_workspace() {
  const Matrix<float> x("x", 5, 64), weight("weight", 7, 64), y("y", 5, 7), residual("residual", 5, 7);
  const Matrix<float> dx("dx", 5, 64), dweight("dweight", 7, 64), dy("dy", 5, 64);
  const Vector<float> scale("scale", 64), rstd("rstd", 5), dscale("dscale", 64), norm("norm", 1);
  const auto drawn = sample_operands<float>();
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
      {"quantized_linear_backward_input",
       [=](const Workspace& w) { quantized_linear_backward_input(packed(), y, dx, {}, w); }},
      {"ternary_quantize", [=](const Workspace& w) { ternary_quantize(weight, packed(), w); }},
      {"ternary_linear_forward", [=](const Workspace& w) { ternary_linear_forward(x, weight, y, {}, w); }},
      {"ternary_linear_backward",
       [=](const Workspace& w) { ternary_linear_backward(x, weight, y, dx, dweight, {}, w); }},
      {"sample",
       [=](const Workspace& w) {
         sample(drawn.logits, drawn.positions, drawn.tokens, drawn.log_probabilities, {}, w);
       }},
      {"sample", [=](const Workspace& w) { sample(drawn, {}, w); }},
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
  for (const auto& calls :
       {with_linear_workspace(), with_attention_workspace(), with_swiglu_workspace(), with_other_workspace()})
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

BOOST_AUTO_TEST_CASE(workspaces_are_asked_for_without_an_instance) {
  const Kokkos::DefaultExecutionSpace exec;
  BOOST_TEST(rms_norm_backward_workspace_bytes<float>(100, 64) ==
             rms_norm_backward_workspace_bytes<float>(exec, 100, 64));
  BOOST_TEST(rms_norm_backward_workspace_bytes<float>(100, 8, 64) ==
             rms_norm_backward_workspace_bytes<float>(exec, 100, 8, 64));
  BOOST_TEST(rms_norm_residual_backward_workspace_bytes<float>(100, 64) ==
             rms_norm_residual_backward_workspace_bytes<float>(exec, 100, 64));
  BOOST_TEST(rms_norm_backward_workspace_bytes<float>(100, 8, 64) > 0u);
  BOOST_TEST(sample_workspace_bytes<float>(5, 12, false) ==
             sample_workspace_bytes<float>(exec, 5, 12, false, {}));
  BOOST_TEST(swiglu_mlp_forward_workspace_bytes() == linear_forward_workspace_bytes(exec));
  BOOST_TEST(swiglu_mlp_backward_workspace_bytes() == linear_backward_workspace_bytes(exec));
  const QuantizedOutput matrix{QuantizedFormat::tq1_0, nullptr, 7, 64};
  BOOST_TEST(ternary_quantize_workspace_bytes(matrix) == ternary_quantize_workspace_bytes(exec, matrix));
  const AttentionShape few{DType::f32, 1, 2, 300, 4, 2, 8, 8};
  const std::size_t bytes = attention_forward_workspace_bytes(exec, few, LastThreeKeys());
  BOOST_TEST(attention_forward_workspace_bytes(few, LastThreeKeys()) == bytes);
  BOOST_TEST(bytes == 0u);  // no kernel splits the keys under a functor
}

// What the pages of the blocks say, on hosts.
BOOST_AUTO_TEST_CASE(workspaces_have_the_documented_size) {
  if (!Impl::is_host_space<Exec>) return;
  const auto norm = [](std::int64_t rows) {
    return rms_norm_backward_workspace_bytes<float>(rows, 16) / (16 * 4);
  };
  BOOST_TEST(norm(40) == 40u);        // rows of partial gradients: one for each row,
  BOOST_TEST(norm(640) == 64u);       // at most 64,
  BOOST_TEST(norm(100'000) == 256u);  // or 256 of many rows
  BOOST_TEST(rms_norm_backward_workspace_bytes<float>(80, 8, 16) == 64u * 16 * 4);
  BOOST_TEST(rms_norm_backward_workspace_bytes<double>(40, 16) == 40u * 16 * 8);
  // One number per query and head; of 16 bits also dq, dk and dv as floats.
  const auto attention = [](DType stored) {
    return attention_backward_workspace_bytes(AttentionShape{stored, 1, 3, 5, 4, 2, 8, 8});
  };
  BOOST_TEST(attention(DType::f32) == 3u * 4 * 4);
  BOOST_TEST(attention(DType::f64) == 3u * 4 * 8);
  BOOST_TEST(attention(DType::bf16) == 64u + (3 * 4 + 5 * 2 + 5 * 2) * 8 * 4);
  BOOST_TEST(standard_attention_backward_workspace_bytes<bf16>(2, 4, 5, 6) == 2u * 4 * 5 * 6 * 2);
  // Eight bytes for each piece of 8192 elements of each parameter.
  const Vector<float> whole("whole", 8192), more("more", 8193);
  const std::vector<AdamWParameter> parameters{{.gradient = tensor_ref(whole)}, {.gradient = tensor_ref(more)}};
  BOOST_TEST(gradient_norm_workspace_bytes(parameters) == 3u * 8);
  // A sum for each row and the mean; the packed weight; backward also has weight and x as numbers.
  const QuantizedOutput matrix{QuantizedFormat::tq2_0, nullptr, 7, 64};
  BOOST_TEST(ternary_quantize_workspace_bytes(matrix) == 8u * 8);
  const std::size_t packed = 512;  // 7 blocks of 66 bytes, in whole lines of 64
  BOOST_TEST(ternary_linear_forward_workspace_bytes<float>(5, 64, 7) == packed + 64);
  BOOST_TEST(ternary_linear_backward_workspace_bytes<float>(5, 64, 7) == packed + 64 + (7 + 5) * 64 * 4);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
