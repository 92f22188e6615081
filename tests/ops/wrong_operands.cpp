// SPDX-License-Identifier: MIT
// Operands that do not fit together: each extent of each operand, strides, and memory that outputs share. A check
// that is lost or that looks at one extent too few is seen here.
#include <type_traits>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/lora.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/sampling.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/spoilt_operands.hpp"

namespace kformer::Testing {
using namespace spoilt_operands;

namespace {

constexpr DType ids = DType::i32, codes = DType::u8;

}  // namespace

BOOST_AUTO_TEST_SUITE(wrong_operands)

BOOST_AUTO_TEST_CASE(norms) {
  using namespace Impl;
  using F = RmsNormForward;
  const TensorRef x = dense({3, 8}), weight = dense({8}), rstd = dense({3});
  check_operands("rms_norm_forward", F{x, {}, weight, {}, x, rstd, 1e-5}, {{2, 3}, {{2, 0}}}, &F::x, &F::weight,
                 &F::y, &F::rstd);
  check_operands("rms_norm_residual_forward", F{x, x, weight, x, x, rstd, 1e-5}, {{3, 4, 5}, {{3, 0}, {3, 1}}},
                 &F::x, &F::residual, &F::weight, &F::sum, &F::y, &F::rstd);
  const TensorRef q = dense({3, 4, 8}), k = dense({3, 2, 8}), q_rstd = dense({3, 4}), k_rstd = dense({3, 2});
  check_operands("rms_norm_forward of heads", F{q, {}, weight, {}, q, q_rstd, 1e-5}, {{2, 3}, {{2, 0}}}, &F::x,
                 &F::weight, &F::y, &F::rstd);
  using QK = QkNormForward;
  const auto side = [](RmsNormForward QK::* which, TensorRef F::* operand) {
    return [=](QK& p) -> TensorRef& { return p.*which.*operand; };
  };
  check_operands("qk_norm_forward",
                 QK{{q, {}, weight, {}, q, q_rstd, 1e-5}, {k, {}, weight, {}, k, k_rstd, 1e-5}},
                 {{4, 5, 6, 7}, {{4, 0}, {5, 1}}}, side(&QK::q, &F::x), side(&QK::k, &F::x),
                 side(&QK::q, &F::weight), side(&QK::k, &F::weight), side(&QK::q, &F::y), side(&QK::k, &F::y),
                 side(&QK::q, &F::rstd), side(&QK::k, &F::rstd));
  using B = RmsNormBackward;
  check_operands("rms_norm_backward", B{x, weight, rstd, x, {}, x, weight}, {{4, 5}, {{4, 3}}}, &B::x,
                 &B::weight, &B::rstd, &B::dy, &B::dx, &B::dweight);
  check_operands("rms_norm_residual_backward", B{x, weight, rstd, x, x, x, weight}, {{5, 6}, {{5, 3}, {5, 4}}},
                 &B::x, &B::weight, &B::rstd, &B::dy, &B::dsum, &B::dx, &B::dweight);
}

BOOST_AUTO_TEST_CASE(activations) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), weight_gate_up = dense({12, 8}), weight_down = dense({8, 6}),
                  gate_up = dense({3, 12}), product = dense({3, 6});
  using F = SwigluForward;
  check_operands("swiglu_forward", F{x, x, x}, {{2}, {{2, 0}, {2, 1}}}, &F::gate, &F::up, &F::y);
  using B = SwigluBackward;
  check_operands("swiglu_backward", B{x, x, x, x, x},
                 {{3, 4}, {{3, 0}, {3, 1}, {3, 2}, {4, 0}, {4, 1}, {4, 2}}}, &B::gate, &B::up, &B::dy,
                 &B::dgate, &B::dup);
  using MF = SwigluMlpForward;
  check_operands("swiglu_mlp_forward", MF{x, weight_gate_up, weight_down, gate_up, product, x},
                 {{3, 4, 5}, {{5, 0}}}, &MF::x, &MF::weight_gate_up, &MF::weight_down, &MF::gate_up,
                 &MF::product, &MF::y);
  using MB = SwigluMlpBackward;
  check_operands(
      "swiglu_mlp_backward",
      MB{x, weight_gate_up, weight_down, gate_up, product, x, product, gate_up, x, weight_gate_up, weight_down},
      {{6, 7, 8, 9, 10}, {{6, 4}, {7, 3}, {8, 5}, {8, 0}}}, &MB::x, &MB::weight_gate_up, &MB::weight_down,
      &MB::gate_up, &MB::product, &MB::dy, &MB::dproduct, &MB::dgate_up, &MB::dx, &MB::dweight_gate_up,
      &MB::dweight_down);
  using TA = TernaryActivations;
  check_operands("ternary_activations", TA{x, x}, {{1}, {{1, 0}}}, &TA::x, &TA::y);
}

BOOST_AUTO_TEST_CASE(losses_and_tables) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), row = dense({3}), targets = dense({3}, ids), weight = dense({9, 8});
  using F = CrossEntropyForward;
  check_operands("cross_entropy_forward", F{x, targets, row, row, {}}, {{2, 3}, {}, {{0, 1}}, {{0, 1}}},
                 &F::logits, &F::targets, &F::loss, &F::lse);
  using B = CrossEntropyBackward;
  check_operands("cross_entropy_backward", B{x, targets, row, row, x, {}}, {{4}, {{4, 0}}}, &B::logits,
                 &B::targets, &B::lse, &B::dloss, &B::dlogits);
  using L = LinearCrossEntropy;
  check_operands("linear_cross_entropy of the loss alone", L{x, weight, targets, row, {}, {}, {}, {}},
                 {{3}, {}, {{1, 0}}, {{1, 0}}}, &L::x, &L::weight, &L::targets, &L::loss);
  check_operands("linear_cross_entropy", L{x, weight, targets, row, row, x, weight, {}}, {{3, 5, 6}, {{5, 0}}},
                 &L::x, &L::weight, &L::targets, &L::loss, &L::dloss, &L::dx, &L::dweight);
  using EF = EmbeddingForward;
  check_operands("embedding_forward", EF{targets, weight, x}, {{2}, {}, {{1, 0}}, {{1, 0}}}, &EF::ids,
                 &EF::weight, &EF::y);
  using EB = EmbeddingBackward;
  check_operands("embedding_backward", EB{targets, x, weight}, {{2}, {}, {{2, 0}}, {{2, 0}}}, &EB::ids, &EB::dy,
                 &EB::dweight);
  using T = TokenLogProbabilities;
  check_operands("token_log_probabilities", T{x, targets, row}, {{2}, {}, {{0, 1}}, {{0, 1}}}, &T::logits,
                 &T::ids, &T::log_probabilities);
  using S = Sampling;
  check_operands("sample", S{x, dense({3, 2}, ids), targets, targets, targets, row, {}},
                 {{4, 5}, {}, {{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}}, &S::logits, &S::history, &S::history_lengths,
                 &S::positions, &S::tokens, &S::log_probabilities);
}

BOOST_AUTO_TEST_CASE(products) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), w = dense({6, 8}), y = dense({3, 6}), bias = dense({6});
  using F = LinearForward;
  check_operands("linear_forward", F{x, w, {}, {}, y}, {{2}}, &F::x, &F::weight, &F::y);
  check_operands("linear_bias_forward", F{x, w, bias, {}, y}, {{3}}, &F::x, &F::weight, &F::bias, &F::y);
  check_operands("linear_residual_forward", F{x, w, {}, y, y}, {{3}, {{3, 2}}}, &F::x, &F::weight, &F::residual,
                 &F::y);
  check_operands("linear_forward of a batch", F{dense({2, 3, 8}), dense({2, 6, 8}), {}, {}, dense({2, 3, 6})},
                 {{2}}, &F::x, &F::weight, &F::y);
  using I = LinearBackwardInput;
  check_operands("linear_backward_input", I{w, y, x}, {{2}}, &I::weight, &I::dy, &I::dx);
  using W = LinearBackwardWeight;
  check_operands("linear_backward_weight", W{x, y, w}, {{2}}, &W::x, &W::dy, &W::dweight);
  using B = LinearBackwardBias;
  check_operands("linear_backward_bias", B{y, bias}, {{1}, {}, {{0, 0}}, {{0, 0}}}, &B::dy, &B::dbias);
  using S = LinearSwigluForward;
  check_operands("linear_swiglu_forward", S{x, dense({12, 8}), dense({3, 12}), y}, {{2, 3}}, &S::x, &S::weight,
                 &S::gate_up, &S::product);
  using R = LinearRopeForward;
  check_operands("linear_bias_rope_forward",
                 R{x,
                   dense({10, 8}),
                   dense({10}),
                   dense({3, 10}),
                   dense({9, 2}),
                   dense({9, 2}),
                   {.heads = 2, .seq_len = 3}},
                 {{3}}, &R::x, &R::weight, &R::bias, &R::y, &R::cos, &R::sin);
}

BOOST_AUTO_TEST_CASE(adapters) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), w = dense({6, 8}), y = dense({3, 6}), a = dense({5, 8}),
                  xa = dense({3, 5});
  LoraFactors parts;
  parts.count = 2;
  parts.part[0] = {.b = dense({4, 3}), .column = 0};
  parts.part[1] = {.b = dense({2, 2}), .column = 4};
  using F = LoraForward;
  const auto b = []<class P>(std::type_identity<P>, std::size_t i) {
    return [=](P& p) -> TensorRef& { return p.parts.part[i].b; };
  };
  const std::type_identity<F> forward;
  // A part may adapt fewer columns.
  check_operands("lora_forward", F{x, w, {}, {}, a, parts, xa, y}, {{5, 6}, {}, {}, {{3, 0}, {4, 0}}}, &F::x,
                 &F::weight, &F::a, b(forward, 0), b(forward, 1), &F::xa, &F::y);
  check_operands("lora_bias_forward", F{x, w, dense({6}), {}, a, parts, xa, y},
                 {{6, 7}, {}, {}, {{4, 0}, {5, 0}}}, &F::x, &F::weight, &F::bias, &F::a, b(forward, 0),
                 b(forward, 1), &F::xa, &F::y);
  check_operands("lora_residual_forward", F{x, w, {}, y, a, parts, xa, y},
                 {{6, 7}, {{7, 2}}, {}, {{4, 0}, {5, 0}}}, &F::x, &F::weight, &F::residual, &F::a,
                 b(forward, 0), b(forward, 1), &F::xa, &F::y);
  using I = LoraBackwardInput;
  const std::type_identity<I> backward;
  check_operands("lora_backward_input", I{w, a, parts, y, xa, x, x}, {{5, 7}, {{7, 6}}, {}, {{2, 0}, {3, 0}}},
                 &I::weight, &I::a, b(backward, 0), b(backward, 1), &I::dy, &I::dxa, &I::addend, &I::dx);
}

BOOST_AUTO_TEST_CASE(attention) {
  using namespace Impl;
  const TensorRef q = dense({3, 5, 4, 8}), k = dense({3, 7, 2, 8}), v = dense({3, 7, 2, 6}),
                  out = dense({3, 5, 4, 6}), lse = dense({3, 4, 5}), heads = dense({4}),
                  p = dense({3, 4, 5, 7});
  const AttentionExtraRefs extras{.bias = p,
                                  .alibi_slopes = heads,
                                  .sinks = heads,
                                  .cu_seqlens_q = {},
                                  .cu_seqlens_kv = {},
                                  .block_mask = dense({3, 4, 3, 2}, ids),
                                  .block_q = 2,
                                  .block_kv = 4};
  const auto extra = []<class P>(std::type_identity<P>, TensorRef AttentionExtraRefs::* which) {
    return [=](P& problem) -> TensorRef& { return problem.extras.*which; };
  };
  using X = AttentionExtraRefs;
  using F = AttentionForward;
  const std::type_identity<F> forward;
  check_operands("attention_forward", F{q, k, v, out, lse, {}, extras}, {{7, 8}}, &F::q, &F::k, &F::v,
                 extra(forward, &X::bias), extra(forward, &X::alibi_slopes), extra(forward, &X::sinks),
                 extra(forward, &X::block_mask), &F::out, &F::lse);
  using B = AttentionBackward;
  const std::type_identity<B> backward;
  check_operands(
      "attention_backward", B{q, k, v, out, lse, out, q, k, v, {}, extras, {.dbias = p, .dsinks = heads}},
      {{10, 11, 12, 13, 14}}, &B::q, &B::k, &B::v, extra(backward, &X::bias), extra(backward, &X::alibi_slopes),
      extra(backward, &X::sinks), extra(backward, &X::block_mask), &B::out, &B::lse, &B::dout, &B::dq, &B::dk,
      &B::dv, [](B& problem) -> TensorRef& { return problem.gradients.dbias; },
      [](B& problem) -> TensorRef& { return problem.gradients.dsinks; });
  using SF = StandardAttentionForward;
  check_operands("standard_attention_forward", SF{q, k, v, p, out, p, {}}, {{4, 5}}, &SF::q, &SF::k, &SF::v,
                 &SF::mask, &SF::out, &SF::probabilities);
  using SB = StandardAttentionBackward;
  check_operands("standard_attention_backward", SB{q, k, v, p, out, q, k, v, {}}, {{5, 6, 7}}, &SB::q, &SB::k,
                 &SB::v, &SB::probabilities, &SB::dout, &SB::dq, &SB::dk, &SB::dv);
}

BOOST_AUTO_TEST_CASE(rotations) {
  using namespace Impl;
  const TensorRef q = dense({3, 5, 4, 8}), k = dense({3, 5, 2, 8}), table = dense({9, 4}),
                  positions = dense({3, 5}, ids);
  const RopeRotation rotation{q, k, table, table, positions, 0, RopeLayout::half_split};
  const Rules rules{{0, 1}, {}, {{0, 2}, {1, 2}}, {{0, 2}, {1, 2}}};
  const auto check_rotation = [&]<class R>(const char* name, const R& problem) {
    check_operands(name, problem, rules, &R::q, &R::k, &R::cos, &R::sin, &R::positions);
  };
  check_rotation("rope_forward", RopeForward{rotation});
  check_rotation("rope_backward", RopeBackward{rotation});
  check_operands("rope_tables", RopeTables{table, table, {}}, {{0, 1}}, &RopeTables::cos, &RopeTables::sin);
}

BOOST_AUTO_TEST_CASE(caches) {
  using namespace Impl;
  const TensorRef k = dense({5, 2, 8}), v = dense({5, 2, 6}), k_cache = dense({9, 2, 8}),
                  v_cache = dense({9, 2, 6});
  using A = KvAppend;
  check_operands("kv_append", A{k, v, dense({5}, ids), k_cache, v_cache}, {{3, 4}}, &A::k, &A::v, &A::slots,
                 &A::k_cache, &A::v_cache);
  using G = KvGather;
  check_operands("kv_gather", G{k_cache, v_cache, dense({2}, ids), k, v, 4}, {{3, 4}, {}, {{2, 0}}},
                 &G::k_cache, &G::v_cache, &G::pages, &G::k, &G::v);
  using C = KvCopy;
  check_operands("kv_copy", C{dense({2, 9, 2, 8}), dense({2, 9, 2, 8})}, {{1}}, &C::from, &C::to);
  using D = KvCompact;
  check_operands("kv_compact", D{dense({3, 9, 4, 8}), dense({3, 4, 9}, ids)},
                 {{0}, {}, {{0, 1}, {0, 3}}, {{0, 3}, {1, 2}}}, &D::cache, &D::kept);
  const auto part = []<class P>(std::type_identity<P>, KvCodes P::* cache, TensorRef KvCodes::* which) {
    return [=](P& p) -> TensorRef& { return p.*cache.*which; };
  };
  using A8 = KvAppendInt8;
  const std::type_identity<A8> append;
  check_operands("kv_append_int8",
                 A8{k,
                    v,
                    dense({5}, ids),
                    {dense({9, 2, 8}, codes), dense({9, 2})},
                    {dense({9, 2, 6}, codes), dense({9, 2})}},
                 {{3, 4, 5, 6}}, &A8::k, &A8::v, &A8::slots, part(append, &A8::k_cache, &KvCodes::codes),
                 part(append, &A8::k_cache, &KvCodes::scale), part(append, &A8::v_cache, &KvCodes::codes),
                 part(append, &A8::v_cache, &KvCodes::scale));
  using G8 = KvGatherInt8;
  const std::type_identity<G8> gather;
  check_operands("kv_gather_int8",
                 G8{{dense({5, 2, 8}, codes), dense({5, 2})}, {dense({5, 2, 6}, codes), dense({5, 2})}, k, v},
                 {{4, 5}}, part(gather, &G8::k_cache, &KvCodes::codes),
                 part(gather, &G8::k_cache, &KvCodes::scale), part(gather, &G8::v_cache, &KvCodes::codes),
                 part(gather, &G8::v_cache, &KvCodes::scale), &G8::k, &G8::v);
  using M = KvAttentionMass;
  check_operands("kv_attention_mass",
                 M{dense({3, 4, 8}), dense({9, 2, 8}), dense({4, 3}), dense({2, 9}, ids), dense({2, 9}), {}},
                 {{4}}, &M::q, &M::k, &M::lse, &M::positions, &M::mass);
  BOOST_TEST(
      refused(M{dense({10, 4, 8}), dense({9, 2, 8}), dense({4, 10}), dense({2, 9}, ids), dense({2, 9}), {}}));
  using H = KvHeavyHitters;
  check_operands("kv_heavy_hitters", H{dense({2, 3, 9}), dense({2, 3, 9}, ids), 2},
                 {{1}, {}, {{0, 2}}, {{1, 2}}}, &H::mass, &H::kept);
  using K = KvMask;
  check_operands("kv_mask", K{dense({3, 9}, ids), dense({9, 9, 9}), {}}, {{1}, {}, {}, {{1, 1}}}, &K::positions,
                 &K::bias);
}

BOOST_AUTO_TEST_CASE(quantised_weights) {
  using namespace Impl;
  constexpr auto format = QuantizedFormat::q4_0;
  std::byte* const memory = place(most_operands - 2);
  const QuantizedMatrix weight{format, memory, 7, 64};
  const TensorRef x = dense({3, 64}), y = dense({3, 7}), matrix = dense({7, 64}), rows = dense({3}, ids);
  using F = QuantizedLinearForward;
  const auto left = []<class P>(P& p) -> TensorRef& { return p.adapter.left; };
  const auto right = []<class P>(P& p) -> TensorRef& { return p.adapter.right; };
  const F forward{x, weight, y, y, {}, {dense({3, 2}), dense({7, 2})}};
  check_operands("quantized_linear_residual_forward", forward, {{4}, {{4, 3}}}, &F::x, left, right,
                 &F::residual, &F::y);
  check_matrix("quantized_linear_forward", F{x, weight, {}, y}, &F::weight, &F::y);
  using I = QuantizedLinearBackwardInput;
  const I backward{weight, y, x, {}, {dense({3, 2}), dense({2, 64})}, x};
  check_operands("quantized_linear_backward_input", backward, {{4}, {{4, 3}}}, &I::dy, left, right, &I::addend,
                 &I::dx);
  check_matrix("quantized_linear_backward_input", I{weight, y, x}, &I::weight, &I::dx);
  using E = QuantizedEmbeddingForward;
  check_operands("quantized_embedding_forward", E{rows, weight, x}, {{1}}, &E::ids, &E::y);
  check_matrix("quantized_embedding_forward", E{rows, weight, x}, &E::weight, &E::y, true);
  check_matrix("dequantize", Dequantize{weight, matrix}, &Dequantize::matrix, &Dequantize::y);
  check_matrix("quantize", Quantize{matrix, {format, memory, 7, 64}}, &Quantize::matrix, &Quantize::x);
  using Q = TernaryQuantize;
  check_operands("ternary_quantize", Q{matrix, {QuantizedFormat::tq2_0, memory, 7, 64}}, {}, &Q::weight);
  check_matrix("ternary_quantize", Q{matrix, {QuantizedFormat::tq2_0, memory, 7, 64}}, &Q::matrix, &Q::weight);
  using T = TernaryLinear;
  check_operands("ternary_linear_forward", T{x, matrix, y, {}, {}, {}}, {{2}}, &T::x, &T::weight, &T::y);
  check_operands("ternary_linear_backward", T{x, matrix, {}, y, x, matrix}, {{3, 4}}, &T::x, &T::weight, &T::dy,
                 &T::dx, &T::dweight);
}

/// A step over one parameter.
struct Step {
  AdamWParameter parameter;
  void check() const { Impl::AdamW{{&parameter, 1}, {}, {}}.check(); }
};

BOOST_AUTO_TEST_CASE(states_of_parameters) {
  const auto of = [](TensorRef AdamWParameter::* which) {
    return [=](Step& step) -> TensorRef& { return step.parameter.*which; };
  };
  using P = AdamWParameter;
  const TensorRef weight = dense({3, 300}, DType::bf16), exact = dense({3, 300}), code = dense({3, 300}, codes);
  Step plain, coded;
  plain.parameter = {.weight = weight, .gradient = exact, .master = exact, .m = exact, .v = exact};
  check_operands("adamw", plain, {{0, 2, 3, 4}}, of(&P::weight), of(&P::gradient), of(&P::master), of(&P::m),
                 of(&P::v));
  coded.parameter = {.weight = weight, .gradient = exact, .master = exact, .m = code, .v = code};
  coded.parameter.m_scale = coded.parameter.v_scale = dense({4});
  check_operands("adamw with 8-bit states", coded, {{0, 2, 3, 4, 5, 6}}, of(&P::weight), of(&P::gradient),
                 of(&P::master), of(&P::m), of(&P::v), of(&P::m_scale), of(&P::v_scale));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
