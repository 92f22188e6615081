// SPDX-License-Identifier: MIT
#pragma once

#include <span>

#include "kformer/ops/adamw.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/adamw/host/arguments.hpp"

/// \file
/// The parameters of a model in batches that one launch takes, cut into pieces of equal size.

namespace kformer::Impl {

/// Elements of a piece: whole blocks of 8-bit states, and many enough to pay for finding the parameter.
inline constexpr std::int64_t adamw_piece = 32 * adamw_block;

/// Small enough to be part of a kernel's arguments on a device (4 KiB).
struct AdamWBatch {
  static constexpr int capacity = 32;
  int count = 0;
  std::int64_t pieces = 0;
  std::int64_t first_piece[capacity];
  host::AdamWItem items[capacity];

  void add(const AdamWParameter& p) {
    first_piece[count] = pieces;
    items[count++] = {p.weight.data,
                      p.gradient.data,
                      p.master.data,
                      p.m.data,
                      p.v.data,
                      static_cast<float*>(p.m_scale.data),
                      static_cast<float*>(p.v_scale.data),
                      p.gradient.size(),
                      p.weight_decay};
    pieces += ceil_div(p.gradient.size(), adamw_piece);
  }

  /// The parameter a piece belongs to.
  KOKKOS_INLINE_FUNCTION int find(std::int64_t piece) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_piece[middle] <= piece ? low : high) = middle;
    }
    return low;
  }
};

/// Elements [begin, end) of one parameter.
struct AdamWRange {
  int item;
  std::int64_t begin, end;
};

KOKKOS_INLINE_FUNCTION AdamWRange range_of(const AdamWBatch& batch, std::int64_t piece) {
  const int item = batch.find(piece);
  const std::int64_t begin = (piece - batch.first_piece[item]) * adamw_piece;
  return {item, begin, Kokkos::min(begin + adamw_piece, batch.items[item].size)};
}

/// `launch(batch)` until every parameter that is `wanted` and not empty was in one.
template <class Wanted, class Launch>
void for_each_batch(std::span<const AdamWParameter> parameters, Wanted wanted, Launch launch) {
  AdamWBatch batch;
  for (const AdamWParameter& p : parameters) {
    if (p.gradient.size() == 0 || !wanted(p)) continue;
    batch.add(p);
    if (batch.count < AdamWBatch::capacity) continue;
    launch(batch);
    batch = {};
  }
  if (batch.count > 0) launch(batch);
}

/// `launch(batch, storage, is_coded)` with `std::type_identity<T>` of the weights and whether states have
/// 8 bits (`std::bool_constant`).
template <class Launch>
void for_each_kind_of_batch(std::span<const AdamWParameter> parameters, Launch launch) {
  const auto of_kind = [&]<class T, bool is_coded>(std::type_identity<T> storage,
                                                   std::bool_constant<is_coded> coded) {
    for_each_batch(
        parameters,
        [](const AdamWParameter& p) {
          return p.weight.dtype == dtype_of<T> && (p.m.dtype == DType::u8) == is_coded;
        },
        [&](const AdamWBatch& batch) { launch(batch, storage, coded); });
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    dispatch_dtype(dtype, [&]<class T>(std::type_identity<T> storage) {
      of_kind(storage, std::false_type{});
      if constexpr (sizeof(T) < 8) of_kind(storage, std::true_type{});
    });
}

/// Pieces of all gradients together.
inline std::int64_t adamw_pieces(std::span<const AdamWParameter> parameters) {
  std::int64_t pieces = 0;
  for (const AdamWParameter& p : parameters) pieces += ceil_div(p.gradient.size(), adamw_piece);
  return pieces;
}

/// What the gradients are multiplied by, as far as the host knows, and where the norm is.
struct GradientScaling {
  const void* norm;  // null: no norm
  double scale, max_norm;

  template <class C>
  KOKKOS_INLINE_FUNCTION bool skips() const {
    return norm != nullptr && !Kokkos::isfinite(*static_cast<const C*>(norm));
  }
  template <class C>
  KOKKOS_INLINE_FUNCTION double factor() const {
    if (max_norm == 0) return scale;
    const double length = static_cast<double>(*static_cast<const C*>(norm)) * scale + host::clip_epsilon;
    return length > max_norm ? scale * (max_norm / length) : scale;
  }
};

inline GradientScaling gradient_scaling(const AdamW& p) {
  return {p.norm.present() ? p.norm.data : nullptr, p.options.gradient_scale, p.options.max_norm};
}

/// All but the gradient's factor, which the norm decides.
inline host::AdamWNumbers adamw_numbers(const AdamWOptions& o) {
  // 1 − β^t without cancellation.
  const auto correction = [&](double beta) {
    return 1 / -std::expm1(static_cast<double>(o.step) * std::log(beta));
  };
  return {
      o.learning_rate, 1 - o.beta1, 1 - o.beta2, correction(o.beta1), std::sqrt(correction(o.beta2)), o.eps, 1};
}

}  // namespace kformer::Impl
