// SPDX-License-Identifier: MIT
// Operands that a kernel would run on and compute nonsense: integers where numbers belong, and outputs that
// share memory with other operands although the function does not allow it.
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "kformer/ops/attention.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/lora.hpp"
#include "kformer/ops/quantized.hpp"
#include "kformer/ops/rms_norm.hpp"
#include "kformer/ops/rope.hpp"
#include "kformer/ops/sampling.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/dense_ref.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

bool refused(const auto& problem) {
  try {
    problem.check();
  } catch (const DimensionMismatch& error) {
    return std::string(error.what()).find(" is stored as ") != std::string::npos;
  }
  return false;
}

/// The problem as it is passes; with any one of its operands stored as another type it does not.
template <class Problem, class... Member>
void check_types(const Problem& problem, Member... members) {
  BOOST_CHECK_NO_THROW(problem.check());
  const auto check_one = [&](int which, auto member) {
    for (const DType wrong : {DType::i32, DType::u8, DType::f64}) {
      Problem changed = problem;
      if ((changed.*member).dtype == wrong) continue;
      (changed.*member).dtype = wrong;
      BOOST_TEST(refused(changed), Problem::function << ": operand " << which << " as " << to_string(wrong));
    }
  };
  int which = 0;
  (check_one(which++, members), ...);
}

/// All operands of numbers as integers: nothing is left to compare with.
template <class Problem, class... Member>
void check_all_integers(const Problem& problem, Member... members) {
  for (const DType wrong : {DType::i32, DType::u8}) {
    Problem changed = problem;
    (((changed.*members).dtype = wrong), ...);
    BOOST_TEST(refused(changed), Problem::function << " of " << to_string(wrong));
  }
}

constexpr DType ids = DType::i32, codes = DType::u8;

}  // namespace

BOOST_AUTO_TEST_SUITE(misuse)

BOOST_AUTO_TEST_CASE(every_operand_of_row_functions_has_its_type) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), row = dense({8}), col = dense({3});
  const RmsNormForward norm{x, {}, row, {}, x, col, 1e-5}, fused{x, x, row, x, x, col, 1e-5};
  using N = RmsNormForward;
  check_types(norm, &N::x, &N::weight, &N::y, &N::rstd);
  check_types(fused, &N::x, &N::residual, &N::weight, &N::sum, &N::y, &N::rstd);
  check_all_integers(norm, &N::x, &N::weight, &N::y, &N::rstd);
  const TensorRef heads = dense({3, 2, 8}), scales = dense({3, 2});
  const N side{heads, {}, row, {}, heads, scales, 1e-5};
  const QkNormForward qk_norm{side, side};
  BOOST_CHECK_NO_THROW(qk_norm.check());
  for (const auto which : {&QkNormForward::q, &QkNormForward::k})
    for (const auto operand : {&N::x, &N::weight, &N::y, &N::rstd})
      for (const DType wrong : {DType::i32, DType::u8, DType::f64}) {
        QkNormForward changed = qk_norm;
        ((changed.*which).*operand).dtype = wrong;
        BOOST_TEST(refused(changed), "an operand of qk_norm_forward as " << to_string(wrong));
      }
  using NB = RmsNormBackward;
  const NB norm_backward{x, row, col, x, x, x, row};
  check_types(norm_backward, &NB::x, &NB::weight, &NB::rstd, &NB::dy, &NB::dsum, &NB::dx, &NB::dweight);
  check_all_integers(norm_backward, &NB::x, &NB::weight, &NB::rstd, &NB::dy, &NB::dsum, &NB::dx, &NB::dweight);
  using S = SwigluForward;
  check_types(S{x, x, x}, &S::gate, &S::up, &S::y);
  check_all_integers(S{x, x, x}, &S::gate, &S::up, &S::y);
  using SB = SwigluBackward;
  check_types(SB{x, x, x, x, x}, &SB::gate, &SB::up, &SB::dy, &SB::dgate, &SB::dup);
  check_all_integers(SB{x, x, x, x, x}, &SB::gate, &SB::up, &SB::dy, &SB::dgate, &SB::dup);
  const TensorRef targets = dense({3}, ids);
  using C = CrossEntropyForward;
  check_types(C{x, targets, col, col, {}}, &C::logits, &C::targets, &C::loss, &C::lse);
  check_all_integers(C{x, targets, col, col, {}}, &C::logits, &C::loss, &C::lse);
  using CB = CrossEntropyBackward;
  check_types(CB{x, targets, col, col, x, {}}, &CB::logits, &CB::targets, &CB::lse, &CB::dloss, &CB::dlogits);
  check_all_integers(CB{x, targets, col, col, x, {}}, &CB::logits, &CB::lse, &CB::dloss, &CB::dlogits);
  using E = EmbeddingForward;
  check_types(E{targets, dense({9, 8}), x}, &E::ids, &E::weight, &E::y);
  check_all_integers(E{targets, dense({9, 8}), x}, &E::weight, &E::y);
  using EB = EmbeddingBackward;
  check_types(EB{targets, x, dense({9, 8})}, &EB::ids, &EB::dy, &EB::dweight);
  check_all_integers(EB{targets, x, dense({9, 8})}, &EB::dy, &EB::dweight);
  using TL = TokenLogProbabilities;
  check_types(TL{x, targets, col}, &TL::logits, &TL::ids, &TL::log_probabilities);
  check_all_integers(TL{x, targets, col}, &TL::logits, &TL::log_probabilities);
  using SA = Sampling;
  const SA sampling{x, dense({3, 2}, ids), targets, targets, targets, col, {}};
  check_types(sampling, &SA::logits, &SA::history, &SA::history_lengths, &SA::positions, &SA::tokens,
              &SA::log_probabilities);
  check_all_integers(sampling, &SA::logits, &SA::log_probabilities);
  using TA = TernaryActivations;
  check_types(TA{x, x}, &TA::x, &TA::y);
  check_all_integers(TA{x, x}, &TA::x, &TA::y);
}

BOOST_AUTO_TEST_CASE(every_operand_of_products_and_attention_has_its_type) {
  using namespace Impl;
  const TensorRef x = dense({3, 8}), w = dense({6, 8}), y = dense({3, 6}), bias = dense({6});
  using L = LinearForward;
  check_types(L{x, w, bias, {}, y}, &L::x, &L::weight, &L::bias, &L::y);
  check_types(L{x, w, {}, y, y}, &L::x, &L::weight, &L::residual, &L::y);
  check_all_integers(L{x, w, bias, {}, y}, &L::x, &L::weight, &L::bias, &L::y);
  using LI = LinearBackwardInput;
  check_types(LI{w, y, x}, &LI::weight, &LI::dy, &LI::dx);
  check_all_integers(LI{w, y, x}, &LI::weight, &LI::dy, &LI::dx);
  using LW = LinearBackwardWeight;
  check_types(LW{x, y, w}, &LW::x, &LW::dy, &LW::dweight);
  check_all_integers(LW{x, y, w}, &LW::x, &LW::dy, &LW::dweight);
  using LB = LinearBackwardBias;
  check_types(LB{y, bias}, &LB::dy, &LB::dbias);
  check_all_integers(LB{y, bias}, &LB::dy, &LB::dbias);
  using LS = LinearSwigluForward;
  check_types(LS{x, w, y, dense({3, 3})}, &LS::x, &LS::weight, &LS::gate_up, &LS::product);
  check_all_integers(LS{x, w, y, dense({3, 3})}, &LS::x, &LS::weight, &LS::gate_up, &LS::product);
  using LR = LinearRopeForward;
  const LR rope{x, w, bias, y, dense({9, 1}), dense({9, 1}), {.heads = 2, .seq_len = 3}};
  check_types(rope, &LR::x, &LR::weight, &LR::bias, &LR::y, &LR::cos, &LR::sin);
  check_all_integers(rope, &LR::x, &LR::weight, &LR::bias, &LR::y, &LR::cos, &LR::sin);
  const TensorRef q = dense({2, 3, 4, 8}), k = dense({2, 5, 2, 8}), lse = dense({2, 4, 3}),
                  p = dense({2, 4, 3, 5});
  using A = AttentionForward;
  check_types(A{q, k, k, q, lse, {}, {}}, &A::q, &A::k, &A::v, &A::out, &A::lse);
  check_all_integers(A{q, k, k, q, lse, {}, {}}, &A::q, &A::k, &A::v, &A::out, &A::lse);
  using AB = AttentionBackward;
  const AB backward{q, k, k, q, lse, q, q, k, k, {}, {}, {}};
  check_types(backward, &AB::q, &AB::k, &AB::v, &AB::out, &AB::lse, &AB::dout, &AB::dq, &AB::dk, &AB::dv);
  check_all_integers(backward, &AB::q, &AB::k, &AB::v, &AB::out, &AB::lse, &AB::dout, &AB::dq, &AB::dk,
                     &AB::dv);
  using SF = StandardAttentionForward;
  check_types(SF{q, k, k, p, q, p, {}}, &SF::q, &SF::k, &SF::v, &SF::mask, &SF::out, &SF::probabilities);
  check_all_integers(SF{q, k, k, p, q, p, {}}, &SF::q, &SF::k, &SF::v, &SF::mask, &SF::out, &SF::probabilities);
  using SB = StandardAttentionBackward;
  check_types(SB{q, k, k, p, q, q, k, k, {}}, &SB::q, &SB::k, &SB::v, &SB::probabilities, &SB::dout, &SB::dq,
              &SB::dk, &SB::dv);
  using R = RopeForward;
  const R rotation{{q, q, dense({9, 4}), dense({9, 4}), dense({2, 3}, ids), 0, RopeLayout::half_split}};
  check_types(rotation, &R::q, &R::k, &R::cos, &R::sin, &R::positions);
  check_all_integers(rotation, &R::q, &R::k, &R::cos, &R::sin);
  check_all_integers(RopeTables{dense({9, 4}), dense({9, 4}), {}}, &RopeTables::cos, &RopeTables::sin);
}

BOOST_AUTO_TEST_CASE(every_operand_of_caches_has_its_type) {
  using namespace Impl;
  const TensorRef k = dense({3, 2, 8}), cache = dense({9, 2, 8}), slots = dense({3}, ids);
  using A = KvAppend;
  check_types(A{k, k, slots, cache, cache}, &A::k, &A::v, &A::slots, &A::k_cache, &A::v_cache);
  check_all_integers(A{k, k, slots, cache, cache}, &A::k, &A::v, &A::k_cache, &A::v_cache);
  using G = KvGather;
  check_types(G{cache, cache, slots, k, k, 4}, &G::k_cache, &G::v_cache, &G::pages, &G::k, &G::v);
  check_all_integers(G{cache, cache, slots, k, k, 4}, &G::k_cache, &G::v_cache, &G::k, &G::v);
  const KvCodes coded{dense({9, 2, 8}, codes), dense({9, 2})}, rows{dense({3, 2, 8}, codes), dense({3, 2})};
  using A8 = KvAppendInt8;
  check_types(A8{k, k, slots, coded, coded}, &A8::k, &A8::v, &A8::slots);
  check_all_integers(A8{k, k, slots, coded, coded}, &A8::k, &A8::v);
  using G8 = KvGatherInt8;
  check_types(G8{rows, rows, k, k}, &G8::k, &G8::v);
  check_all_integers(G8{rows, rows, k, k}, &G8::k, &G8::v);
  using M = KvAttentionMass;
  const M mass{dense({3, 4, 8}), cache, dense({4, 3}), dense({2, 9}, ids), dense({2, 9}), {}};
  check_types(mass, &M::q, &M::k, &M::lse, &M::positions, &M::mass);
  check_all_integers(mass, &M::q, &M::k, &M::lse, &M::mass);
  check_all_integers(KvHeavyHitters{dense({2, 2, 9}), dense({2, 2, 4}, ids), 2}, &KvHeavyHitters::mass);
  check_all_integers(KvMask{dense({2, 9}, ids), dense({4, 3, 9}), {}}, &KvMask::bias);
}

// Options are double, but kernels of the other types compute in float.
BOOST_AUTO_TEST_CASE(options_are_numbers_of_the_arithmetic) {
  using namespace Impl;
  constexpr double largest = std::numeric_limits<float>::max(), nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double smallest = std::numeric_limits<float>::denorm_min();
  const auto check = [](const auto& problem, const std::string& sentence) {
    if (sentence.empty())
      BOOST_CHECK_NO_THROW(problem.check());
    else
      check_error<NotSupported>([&] { problem.check(); },
                                std::string("kformer::") + problem.function + ": " + sentence);
  };
  for (const DType stored : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const DType computed = compute_dtype(stored);
    const TensorRef q = dense({2, 3, 4, 8}, stored), k = dense({2, 5, 2, 8}, stored),
                    lse = dense({2, 4, 3}, computed), p = dense({2, 4, 3, 5}, stored);
    const TensorRef x = dense({3, 8}, stored), column = dense({3}, computed), targets = dense({3}, ids);
    const auto with_scale = [&](double scale, const std::string& text) {
      const AttentionOptions options{.scale = scale};
      check(AttentionForward{q, k, k, q, lse, options, {}}, text);
      check(AttentionBackward{q, k, k, q, lse, q, q, k, k, options, {}, {}}, text);
      check(StandardAttentionForward{q, k, k, {}, q, p, options}, text);
      check(StandardAttentionBackward{q, k, k, p, q, q, k, k, options}, text);
      check(KvAttentionMass{dense({3, 4, 8}, stored), dense({9, 2, 8}, stored), dense({4, 3}, computed),
                            dense({2, 9}, ids), dense({2, 9}, computed), options},
            text);
    };
    const auto with_softcap = [&](double softcap, const std::string& text) {
      const AttentionOptions options{.softcap = softcap};
      check(AttentionForward{q, k, k, q, lse, options, {}}, text);
      check(AttentionBackward{q, k, k, q, lse, q, q, k, k, options, {}, {}}, text);
      check(CrossEntropyForward{x, targets, column, column, {.softcap = softcap}}, text);
      check(CrossEntropyBackward{x, targets, column, column, x, {.softcap = softcap}}, text);
      check(KvAttentionMass{dense({3, 4, 8}, stored), dense({9, 2, 8}, stored), dense({4, 3}, computed),
                            dense({2, 9}, ids), dense({2, 9}, computed), options},
            text);
    };
    const auto with_z_loss = [&](double z_loss, const std::string& text) {
      check(CrossEntropyForward{x, targets, column, column, {.z_loss = z_loss}}, text);
      check(CrossEntropyBackward{x, targets, column, column, x, {.z_loss = z_loss}}, text);
    };
    for (const double value : {largest, smallest, 0.0})
      with_scale(value, ""), with_softcap(value, ""), with_z_loss(value, "");
    with_scale(nan, "scale must be finite, got nan");
    const bool all = computed == DType::f64;
    with_scale(-1e39, all ? "" : "scale is -1e+39, which is infinite as f32");
    with_scale(1e-50, all ? "" : "scale is 1e-50, which is 0 as f32");
    with_softcap(std::numeric_limits<double>::max(),
                 all ? "" : "softcap is 1.79769e+308, which is infinite as f32");
    with_softcap(1e-50, all ? "" : "softcap is 1e-50, which is 0 as f32");
    with_z_loss(1e39, all ? "" : "z_loss is 1e+39, which is infinite as f32");
    with_z_loss(std::numeric_limits<double>::infinity(),
                std::string("z_loss is inf, which is infinite as ") + to_string(computed));
  }
}

// Functions share checks, and each must call them.
BOOST_AUTO_TEST_CASE(every_function_checks_its_options) {
  using namespace Impl;
  const auto expect = [](const auto& problem, const std::string& sentence) {
    check_error<NotSupported>([&] { problem.check(); },
                              std::string("kformer::") + problem.function + ": " + sentence);
  };
  const TensorRef x = dense({3, 8}), w = dense({8, 8}), y = dense({3, 8}), table = dense({9, 2});
  const LinearOptions scaled{.scale = std::numeric_limits<double>::infinity()};
  const std::string scale = "scale must be finite";
  expect(LinearForward{x, w, {}, {}, y, scaled}, scale);
  expect(LinearBackwardInput{w, y, x, scaled}, scale);
  expect(LinearBackwardWeight{x, y, w, scaled}, scale);
  expect(LinearSwigluForward{x, w, y, dense({3, 4}), scaled}, scale);
  const auto rope = [&](const LinearRopeOptions& o) { return LinearRopeForward{x, w, {}, y, table, table, o}; };
  expect(rope({.heads = 2, .seq_len = 3, .linear = scaled}), scale);
  expect(rope({.heads = -1, .seq_len = 3}), "-1 heads of 4 do not fit into the 8 columns of y");
  expect(rope({.heads = 2, .seq_len = 0}), "seq_len must divide the rows, got 0 and 3 rows");
  expect(rope({.heads = 2, .seq_len = 3, .layout = static_cast<RopeLayout>(7)}),
         "layout has the value 7, which its type does not name; choose one of: half_split, interleaved");
  std::byte memory[1] = {};  // never read
  const QuantizedMatrix weight{QuantizedFormat::q8_0, memory, 8, 8};
  expect(QuantizedLinearForward{x, weight, {}, y, {.scale = scaled.scale}}, scale);
  expect(QuantizedLinearBackwardInput{weight, y, x, scaled}, scale);
  const auto norm = [&](double eps) { return RmsNormForward{x, {}, dense({8}), {}, x, dense({3}), eps}; };
  expect(norm(-1), "eps must not be negative, got -1.000000");
  const TensorRef heads = dense({3, 2, 8});
  const RmsNormForward side{heads, {}, dense({8}), {}, heads, dense({3, 2}), -1};
  expect(QkNormForward{side, side}, "eps must not be negative, got -1.000000");
  const TensorRef cache = dense({9, 2, 8}), positions = dense({2, 9}, ids);
  const auto mass = [&](const AttentionOptions& options) {
    return KvAttentionMass{dense({3, 4, 8}), cache, dense({4, 3}), positions, dense({2, 9}), options};
  };
  expect(mass({.window = -1}), "window must not be negative, got -1");
  expect(mass({.softcap = -1}), "softcap must be finite and not negative, got -1.000000");
  expect(KvHeavyHitters{dense({2, 2, 9}), dense({2, 2, 4}, ids), -1},
         "recent must lie between 0 and the 4 kept tokens, got -1");
  const auto mask = [&](const KvMaskOptions& options) { return KvMask{positions, dense({4, 3, 9}), options}; };
  expect(mask({.window = -1}), "window must not be negative, got -1");
  expect(mask({.sinks = -1}), "sinks must not be negative, got -1");
  expect(mask({.model_window = -1}), "model_window must not be negative, got -1");
}

// Slots are numbered with 32 bits.
BOOST_AUTO_TEST_CASE(caches_have_slots_that_can_be_numbered) {
  using namespace Impl;
  const TensorRef k = dense({3, 1, 1}), slots = dense({3}, ids);
  const auto check = [&](std::int64_t count, auto&& judge) {
    const TensorRef cache = dense({count, 1, 1});
    const KvCodes coded{dense({count, 1, 1}, codes), dense({count, 1})};
    judge(KvAppend{k, k, slots, cache, cache});
    judge(KvGather{cache, cache, slots, k, k, 1});
    judge(KvAppendInt8{k, k, slots, coded, coded});
  };
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  check(most, [](const auto& problem) { BOOST_CHECK_NO_THROW(problem.check()); });
  check(most + 1, [](const auto& problem) {
    check_error<NotSupported>([&] { problem.check(); },
                              std::string("kformer::") + problem.function +
                                  ": a cache has at most 2147483647 slots, not 2147483648; split it");
  });
}

BOOST_AUTO_TEST_CASE(shapes_of_plans_and_matrices_are_not_negative) {
  using namespace Impl;
  using S = AttentionShape;
  for (const auto extent :
       {&S::batch, &S::q_len, &S::kv_len, &S::q_heads, &S::kv_heads, &S::head_dim, &S::v_head_dim}) {
    S shape{DType::f32, 1, 3, 5, 4, 2, 8, 8};
    shape.*extent = -1;
    BOOST_CHECK_THROW(planned_attention_forward(shape, {}, {}), DimensionMismatch);
    BOOST_CHECK_THROW(planned_attention_backward(shape, {}, {}, {}), DimensionMismatch);
  }
  const std::string rows = "kformer::dequantize: extents do not match: ",
                    expected = "; expected matrix to have no negative extent";
  const QuantizedMatrix low{QuantizedFormat::q8_0, nullptr, -1, 8},
      narrow{QuantizedFormat::q8_0, nullptr, 3, -1};
  check_error<DimensionMismatch>([&] { Dequantize{low, dense({-1, 8})}.check(); },
                                 rows + "matrix[-1,8] y[-1,8]" + expected);
  check_error<DimensionMismatch>([&] { Dequantize{narrow, dense({3, -1})}.check(); },
                                 rows + "matrix[3,-1] y[3,-1]" + expected);
}

// What an infinite option makes of finite operands is no result: rows of zeros, or angles of 0.
BOOST_AUTO_TEST_CASE(options_of_products_and_rows_are_numbers_of_the_arithmetic) {
  using namespace Impl;
  constexpr double largest = std::numeric_limits<float>::max(),
                   infinity = std::numeric_limits<double>::infinity();
  const auto refuses = [](const char* option, const auto& problem) {
    BOOST_CHECK_EXCEPTION(problem.check(), NotSupported, [&](const Error& error) {
      return std::string(error.what()).find(std::string(": ") + option + " is ") != std::string::npos;
    });
  };
  std::vector<std::byte> codes_of_w(4096);
  for (const DType stored : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const DType computed = compute_dtype(stored);
    const TensorRef x = dense({3, 32}, stored), w = dense({32, 32}, stored), dw = dense({32, 32}, computed),
                    a = dense({2, 32}, stored), b = dense({32, 2}, stored), xa = dense({3, 2}, stored),
                    vector = dense({32}, stored), column = dense({3}, computed),
                    heads = dense({3, 2, 16}, stored), of_heads = dense({3, 2}, computed),
                    of_head = dense({16}, stored), angles = dense({3, 8}, computed);
    QuantizedMatrix codes;
    codes.rows = codes.cols = 32;
    codes.data = codes_of_w.data();
    const auto with = [&](double number, const auto& check) {
      LoraFactors parts;
      parts.part[0] = {b, 0, number};
      parts.count = 1;
      check("scale", LinearForward{x, w, {}, {}, x, {.scale = number}});
      check("scale", LinearBackwardInput{w, x, x, {.scale = number}});
      check("scale", LinearBackwardWeight{x, x, dw, {.scale = number}});
      check("scale", LinearSwigluForward{x, w, x, dense({3, 16}, stored), {.scale = number}});
      check("scale", LoraForward{x, w, {}, {}, a, parts, xa, x});
      check("scale", LoraBackwardInput{w, a, parts, x, xa, x});
      check("scale", QuantizedLinearForward{x, codes, {}, x, {.scale = number}});
      check("scale", QuantizedLinearBackwardInput{codes, x, x, {.scale = number}});
      check("eps", RmsNormForward{x, {}, vector, {}, x, column, number});
      const RmsNormForward head{heads, {}, of_head, {}, heads, of_heads, number};
      check("eps", QkNormForward{head, head});
    };
    const auto accepts = [](const char*, const auto& problem) { BOOST_CHECK_NO_THROW(problem.check()); };
    with(largest, accepts);
    if (computed == DType::f64)
      with(1e39, accepts), with(1e-50, accepts);
    else
      with(1e39, refuses), with(1e-50, refuses);
    BOOST_CHECK_NO_THROW((RopeTables{angles, angles, {.theta = 1e39}}.check()));
    refuses("theta", RopeTables{angles, angles, {.theta = infinity}});
    RopeOptions scaled{.scaling = {.rope_type = RopeType::llama3}};
    BOOST_CHECK_NO_THROW((RopeTables{angles, angles, scaled}.check()));
    scaled.scaling.factor = infinity;
    refuses("scaling.factor", RopeTables{angles, angles, scaled});
    scaled.scaling.factor = 8;
    scaled.scaling.high_freq_factor = infinity;
    refuses("scaling.high_freq_factor", RopeTables{angles, angles, scaled});
  }
}

BOOST_AUTO_TEST_CASE(outputs_that_share_memory_are_refused) {
  using namespace Impl;
  std::vector<float> memory(4096);
  const auto at = [&](std::size_t place, std::vector<std::int64_t> extents) {
    return dense(extents, DType::f32, memory.data() + place);
  };
  const TensorRef q = at(0, {1, 3, 2, 8}), k = at(100, {1, 3, 2, 8}), v = at(200, {1, 3, 2, 8}),
                  out = at(300, {1, 3, 2, 8}), lse = at(400, {1, 2, 3}), dq = at(500, {1, 3, 2, 8}),
                  dk = at(600, {1, 3, 2, 8}), dv = at(700, {1, 3, 2, 8}), dout = at(800, {1, 3, 2, 8});
  BOOST_CHECK_NO_THROW((AttentionForward{q, k, v, out, lse, {}, {}}.check()));
  check_error<DimensionMismatch>([&] { AttentionForward{q, k, v, q, lse, {}, {}}.check(); },
                                 "kformer::attention_forward: out shares memory with q; pass a separate "
                                 "View: q[1,3,2,8] k[1,3,2,8] v[1,3,2,8] out[1,3,2,8] lse[1,2,3]");
  BOOST_CHECK_NO_THROW((AttentionBackward{q, k, v, out, lse, dout, dq, dk, dv, {}, {}, {}}.check()));
  for (const auto& wrong : {AttentionBackward{q, k, v, out, lse, dout, dq, dq, dq, {}, {}, {}},
                            AttentionBackward{q, k, v, out, lse, dout, dq, dk, dk, {}, {}, {}},
                            AttentionBackward{q, k, v, out, lse, dout, q, dk, dv, {}, {}, {}},
                            AttentionBackward{q, k, v, out, lse, dout, dq, dk, out, {}, {}, {}}})
    BOOST_CHECK_THROW(wrong.check(), DimensionMismatch);
  const TensorRef x = at(0, {4, 8}), w = at(100, {8, 8}), y = at(200, {4, 8}), shifted = at(8, {4, 8});
  BOOST_CHECK_NO_THROW((LinearForward{x, w, {}, y, y}.check()));
  for (const auto& wrong : {LinearForward{x, w, {}, {}, x}, LinearForward{x, w, {}, {}, shifted},
                            LinearForward{x, w, {}, x, shifted}, LinearForward{x, w, {}, {}, at(132, {4, 8})}})
    BOOST_CHECK_THROW(wrong.check(), DimensionMismatch);
  const TensorRef xs = at(0, {2, 4, 8}), ws = at(100, {2, 8, 8}), ys = at(300, {2, 4, 8});
  const auto in_one_place = [](TensorRef batch) {
    batch.stride[0] = 0;
    return batch;
  };
  BOOST_CHECK_NO_THROW((LinearForward{xs, in_one_place(ws), {}, {}, ys}.check()));
  check_error<DimensionMismatch>(
      [&] { LinearForward{xs, ws, {}, {}, in_one_place(ys)}.check(); },
      "kformer::linear_forward: elements of y share memory; pass a View that has each of "
      "them once: x[2,4,8] weight[2,8,8] y[2,4,8]");
  BOOST_CHECK_NO_THROW((LinearBackwardWeight{xs, ys, ws}.check()));
  BOOST_CHECK_THROW((LinearBackwardWeight{xs, ys, in_one_place(ws)}.check()), DimensionMismatch);
  const TensorRef weight = at(300, {8}), rstd = at(400, {4});
  BOOST_CHECK_NO_THROW((RmsNormForward{x, {}, weight, {}, x, rstd, 1e-5}.check()));
  check_error<DimensionMismatch>(
      [&] { RmsNormForward{x, {}, weight, {}, shifted, rstd, 1e-5}.check(); },
      "kformer::rms_norm_forward: y shares memory with x, but is not the same View; pass the same View or a "
      "separate one: x[4,8] weight[8] y[4,8] rstd[4]");
  const TensorRef dy = at(500, {4, 8});
  BOOST_CHECK_NO_THROW((SwigluBackward{x, y, dy, x, dy}.check()));
  BOOST_CHECK_THROW((SwigluBackward{x, y, dy, x, x}.check()), DimensionMismatch);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
