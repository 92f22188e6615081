// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/cross_entropy.hpp"
#include "kformer/ops/embedding.hpp"
#include "kformer/ops/kv_cache.hpp"
#include "kformer/ops/kv_cache_eviction.hpp"
#include "kformer/ops/kv_cache_int8.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/quantized.hpp"
#include "kformer/ops/sampling.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/public_function.hpp"

/// \file
/// The public functions around the layers of a model: embedding, loss, quantisation, optimizer, sampling and
/// cache.

namespace kformer::Testing {

template <class T>
void add_embedding(std::vector<PublicFunction>& table, const Extents& e) {
  const Vector<std::int32_t> ids("ids", e.rows);
  const Matrix<T> weight("weight", e.out, e.in), y("y", e.rows, e.in);
  const Matrix<compute_t<T>> dweight("dweight", e.out, e.in);
  table.push_back(row<Impl::EmbeddingForward>(
      "embedding_forward", [=](const auto&... exec) { embedding_forward(exec..., ids, weight, y); }));
  table.push_back(row<Impl::EmbeddingBackward>(
      "embedding_backward", [=](const auto&... exec) { embedding_backward(exec..., ids, y, dweight); }));
}

template <class T>
void add_quantized(std::vector<PublicFunction>& table, const Extents& e) {
  const Vector<std::int32_t> ids("ids", e.rows);
  const Matrix<T> x("x", e.rows, e.quantized), y("y", e.rows, e.out), rows("rows", e.rows, e.quantized),
      weight("weight", e.out, e.quantized);
  const Kokkos::View<std::byte*, Memory> bytes("bytes",
                                               quantized_bytes(QuantizedFormat::q4_1, e.out, e.quantized));
  // Made in each call: the Views keep the memory, matrices do not.
  const auto matrix = [=] { return QuantizedOutput{QuantizedFormat::q4_1, bytes.data(), e.out, e.quantized}; };
  table.push_back(
      row<Impl::Quantize>("quantize", [=](const auto&... exec) { quantize(exec..., weight, matrix()); }));
  table.push_back(
      row<Impl::Dequantize>("dequantize", [=](const auto&... exec) { dequantize(exec..., matrix(), weight); }));
  for (const auto activations : {Activations::full, Activations::int8})
    table.push_back(row<Impl::QuantizedLinearForward>("quantized_linear_forward", [=](const auto&... exec) {
      quantized_linear_forward(exec..., x, matrix(), y, {activations});
    }));
  table.push_back(row<Impl::QuantizedLinearForward>(
      "quantized_linear_residual_forward",
      [=](const auto&... exec) { quantized_linear_residual_forward(exec..., x, matrix(), y, y); }));
  table.push_back(row<Impl::QuantizedLinearBackwardInput>(
      "quantized_linear_backward_input",
      [=](const auto&... exec) { quantized_linear_backward_input(exec..., matrix(), y, x); }));
  // NF4 is quantised in several launches.
  const Kokkos::View<std::byte*, Memory> nf4_bytes("nf4_bytes",
                                                   quantized_bytes(QuantizedFormat::nf4, e.out, e.quantized));
  const auto nf4 = [=] { return QuantizedOutput{QuantizedFormat::nf4, nf4_bytes.data(), e.out, e.quantized}; };
  table.push_back(
      row<Impl::Quantize>("quantize to NF4", [=](const auto&... exec) { quantize(exec..., weight, nf4()); }));
  table.push_back(row<Impl::QuantizedLinearForward>(
      "quantized_linear_forward by NF4",
      [=](const auto&... exec) { quantized_linear_forward(exec..., x, nf4(), y); }));
  table.push_back(row<Impl::QuantizedLinearBackwardInput>(
      "quantized_linear_backward_input by NF4",
      [=](const auto&... exec) { quantized_linear_backward_input(exec..., nf4(), y, x); }));
  table.push_back(row<Impl::QuantizedEmbeddingForward>("quantized_embedding_forward", [=](const auto&... exec) {
    quantized_embedding_forward(exec..., ids, matrix(), rows);
  }));
}

/// The linear map is composed of these, of the products and of the quantised linear map.
template <class T>
void add_ternary(std::vector<PublicFunction>& table, const Extents& e) {
  const Matrix<T> x("x", e.rows, e.quantized), y("y", e.rows, e.out), dx("dx", e.rows, e.quantized),
      weight("weight", e.out, e.quantized);
  const Matrix<compute_t<T>> dweight("dweight", e.out, e.quantized);
  const auto bytes = workspace(ternary_linear_backward_workspace_bytes<T>(Exec(), e.rows, e.quantized, e.out));
  const Kokkos::View<std::byte*, Memory> packed("packed",
                                                quantized_bytes(QuantizedFormat::tq2_0, e.out, e.quantized));
  table.push_back(row<Impl::TernaryQuantize>("ternary_quantize", [=](const auto&... exec) {
    ternary_quantize(exec..., weight,
                     QuantizedOutput{QuantizedFormat::tq2_0, packed.data(), e.out, e.quantized}, bytes);
  }));
  table.push_back(row<Impl::TernaryActivations>(
      "ternary_activations", [=](const auto&... exec) { ternary_activations(exec..., x, dx); }));
  table.push_back(row<Impl::TernaryQuantize>("ternary_linear_forward", [=](const auto&... exec) {
    ternary_linear_forward(exec..., x, weight, y, {}, bytes);
  }));
  table.push_back(row<Impl::TernaryActivations>("ternary_linear_backward", [=](const auto&... exec) {
    ternary_linear_backward(exec..., x, weight, y, dx, dweight, {}, bytes);
  }));
}

template <class T>
void add_cross_entropy(std::vector<PublicFunction>& table, const Extents& e) {
  const Matrix<T> logits("logits", e.rows, e.in), dlogits("dlogits", e.rows, e.in);
  const Vector<std::int32_t> targets("targets", e.rows);
  const Vector<compute_t<T>> loss("loss", e.rows), lse("lse", e.rows), dloss("dloss", e.rows);
  table.push_back(row<Impl::CrossEntropyForward>("cross_entropy_forward", [=](const auto&... exec) {
    cross_entropy_forward(exec..., logits, targets, loss, lse);
  }));
  table.push_back(row<Impl::CrossEntropyBackward>("cross_entropy_backward", [=](const auto&... exec) {
    cross_entropy_backward(exec..., logits, targets, lse, dloss, dlogits);
  }));
}

/// Composed of the products and of cross entropy; two chunks.
template <class T>
void add_linear_cross_entropy(std::vector<PublicFunction>& table, const Extents& e) {
  const auto all = linear_cross_entropy_operands<T>(e);
  const LinearCrossEntropyOptions options{.chunk_rows = 3};
  const auto bytes = workspace(linear_cross_entropy_workspace_bytes<T>(Exec(), e.rows, e.out, options));
  table.push_back(
      row<Impl::CrossEntropyForward>("linear_cross_entropy of the loss alone", [=](const auto&... exec) {
        linear_cross_entropy(exec..., all.x, all.weight, all.targets, all.loss, options, bytes);
      }));
  table.push_back(row<Impl::CrossEntropyBackward>("linear_cross_entropy", [=](const auto&... exec) {
    linear_cross_entropy(exec..., all, options, bytes);
  }));
}

template <class T>
void add_adamw(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const std::int64_t cols = 5 * e.in, blocks = Impl::ceil_div(e.rows * cols, adamw_block);
  const Matrix<T> weight("weight", e.rows, cols);
  const Matrix<C> gradient("gradient", e.rows, cols), master("master", e.rows, cols), m("m", e.rows, cols),
      v("v", e.rows, cols);
  const Matrix<std::uint8_t> m_code("m_code", e.rows, cols), v_code("v_code", e.rows, cols);
  const Vector<float> m_scale("m_scale", blocks), v_scale("v_scale", blocks);
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
      "gradient_norm", [=](const auto&... exec) { gradient_norm(exec..., plain(), norm, bytes); }));
  table.push_back(row<Impl::AdamW>("adamw", [=](const auto&... exec) { adamw(exec..., plain()); }));
  table.push_back(row<Impl::AdamW>(
      "adamw with a norm", [=](const auto&... exec) { adamw(exec..., plain(), norm, {.max_norm = 1}); }));
  if constexpr (sizeof(T) < 8)
    table.push_back(
        row<Impl::AdamW>("adamw with 8-bit states", [=](const auto&... exec) { adamw(exec..., coded()); }));
}

template <class T>
void add_sampling(std::vector<PublicFunction>& table, const Extents& e) {
  const auto all = sample_operands<T>(e);
  const SamplingOptions options{.top_k = 3, .top_p = 0.9, .min_p = 0.1, .repetition_penalty = 1.1};
  const auto bytes = workspace(sample_workspace_bytes<T>(Exec(), e.rows, e.in, true, options));
  table.push_back(
      row<Impl::Sampling>("sample", [=](const auto&... exec) { sample(exec..., all, options, bytes); }));
  table.push_back(row<Impl::Sampling>("sample without a history", [=](const auto&... exec) {
    sample(exec..., all.logits, all.positions, all.tokens, all.log_probabilities, {.temperature = 0});
  }));
  table.push_back(row<Impl::TokenLogProbabilities>("token_log_probabilities", [=](const auto&... exec) {
    token_log_probabilities(exec..., all.logits, all.tokens, all.log_probabilities);
  }));
}

template <class T>
void add_kv_cache(std::vector<PublicFunction>& table, const Extents& e) {
  using C = compute_t<T>;
  const Tokens<T> k("k", e.rows, 2, e.head_dim), v("v", e.rows, 2, e.head_dim),
      k_cache("k_cache", e.in, 2, e.head_dim), v_cache("v_cache", e.in, 2, e.head_dim);
  const Tokens<std::uint8_t> k_codes("k_codes", e.rows, 2, e.head_dim),
      v_codes("v_codes", e.rows, 2, e.head_dim);
  const Matrix<C> k_scale("k_scale", e.rows, 2), v_scale("v_scale", e.rows, 2);
  const Vector<std::int32_t> slots("slots", e.rows);
  const Heads<T> arrays("arrays", 2, e.in, 2, e.head_dim), others("others", 2, e.in, 2, e.head_dim);
  const Tokens<std::int32_t> kept("kept", 2, 2, 5);
  const Tokens<T> q("q", e.rows, 4, e.head_dim), bias("bias", 4, e.rows, e.in);
  const Matrix<C> lse("lse", 4, e.rows), mass("mass", 2, e.in);
  const Tokens<C> masses("masses", 2, 2, e.in);
  const Matrix<std::int32_t> positions("positions", 2, e.in);
  table.push_back(row<Impl::KvAppend>(
      "kv_append", [=](const auto&... exec) { kv_append(exec..., k, v, slots, k_cache, v_cache); }));
  table.push_back(row<Impl::KvGather>(
      "kv_gather", [=](const auto&... exec) { kv_gather(exec..., k_cache, v_cache, slots, k, v, 4); }));
  table.push_back(row<Impl::KvCopy>("kv_copy", [=](const auto&... exec) { kv_copy(exec..., arrays, others); }));
  table.push_back(
      row<Impl::KvCompact>("kv_compact", [=](const auto&... exec) { kv_compact(exec..., arrays, kept); }));
  const KvAppendInt8Operands appended{.k = k,
                                      .v = v,
                                      .slots = slots,
                                      .k_codes = k_codes,
                                      .k_scale = k_scale,
                                      .v_codes = v_codes,
                                      .v_scale = v_scale};
  table.push_back(row<Impl::KvAppendInt8>("kv_append_int8",
                                          [=](const auto&... exec) { kv_append_int8(exec..., appended); }));
  const KvGatherInt8Operands gathered{
      .k_codes = k_codes, .k_scale = k_scale, .v_codes = v_codes, .v_scale = v_scale, .k = k, .v = v};
  table.push_back(row<Impl::KvGatherInt8>("kv_gather_int8",
                                          [=](const auto&... exec) { kv_gather_int8(exec..., gathered); }));
  table.push_back(row<Impl::KvAttentionMass>("kv_attention_mass", [=](const auto&... exec) {
    kv_attention_mass(exec..., q, k_cache, lse, positions, mass);
  }));
  table.push_back(row<Impl::KvHeavyHitters>(
      "kv_heavy_hitters", [=](const auto&... exec) { kv_heavy_hitters(exec..., masses, kept, 2); }));
  table.push_back(row<Impl::KvMask>(
      "kv_mask", [=](const auto&... exec) { kv_mask(exec..., positions, bias, {.window = 3}); }));
}

}  // namespace kformer::Testing
