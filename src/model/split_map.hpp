// SPDX-License-Identifier: MIT
#pragma once

#include <array>

#include "kformer/model/layer_adapters.hpp"
#include "kformer/ops/linear.hpp"
#include "kformer/ops/lora.hpp"
#include "kformer/ops/quantized.hpp"

/// \file
/// A linear map with adapters, some or all of whose matrices stay quantised (QLoRA): a product for each matrix. Blocks
/// become numbers in tiles of the product, which adds the terms of the adapter before it rounds.

namespace kformer::Impl {

/// A matrix of a map, (out, in): dense, or quantised.
struct SplitMatrix {
  TensorRef dense;  ///< absent if it stays quantised
  QuantizedMatrix quantized;

  bool is_quantized() const { return !dense.present(); }
  std::int64_t rows() const { return is_quantized() ? quantized.rows : dense.extent[0]; }
};

/// The matrices of a map with their adapters, in the order of the columns of y.
template <class Exec, class T, std::size_t count>
struct SplitMap {
  using Memory = typename Exec::memory_space;

  std::array<SplitMatrix, count> weights;
  const AdapterMatrices<Memory, T, count>& adapter;
  bool adapted;       ///< false: without their terms
  TensorRef xa, dxa;  ///< (rows, Σ ranks)
  Workspace workspace;
  bool batch_invariant;

  /// y = x Wᵀ + xa Bᵀ + addend, which may be absent, and whose rows may be one and the same.
  void forward(const Exec& exec, const TensorRef& x, const TensorRef& addend, const TensorRef& y) const {
    each([&](const Part& p) {
      const TensorRef to = p.columns_of_y(y), added = addend.present() ? p.columns_of_y(addend) : addend;
      if (!p.weight.is_quantized()) {
        call(exec, LoraForward{x, p.weight.dense, {}, added, p.a, p.factors(), p.xa, to, {batch_invariant}});
        return;
      }
      low_rank(exec, x, p);
      call(exec,
           QuantizedLinearForward{
               x, p.weight.quantized, added, to, {.batch_invariant = batch_invariant}, p.terms(p.xa, p.b)},
           workspace);
    });
  }

  /// xa alone, with the bits of `forward`.
  void restore(const Exec& exec, const TensorRef& x) const {
    each([&](const Part& p) {
      if (p.weight.is_quantized()) {
        low_rank(exec, x, p);
        return;
      }
      LoraFactors none = p.factors();
      none.part[0].b.extent[0] = 0;
      call(exec, LoraForward{x,
                             rows_of(p.weight.dense, 0, 0),
                             {},
                             {},
                             p.a,
                             none,
                             p.xa,
                             columns_of(p.xa, 0, 0),
                             {batch_invariant}});
    });
  }

  /// y = scale · x W_iᵀ, of one matrix without its adapter.
  void forward_one(const Exec& exec, std::size_t i, const TensorRef& x, const TensorRef& y,
                   const LinearOptions& options) const {
    const SplitMatrix& weight = weights[i];
    if (weight.is_quantized())
      call(exec,
           QuantizedLinearForward{x,
                                  weight.quantized,
                                  {},
                                  y,
                                  {.scale = options.scale, .batch_invariant = options.batch_invariant},
                                  {}},
           workspace);
    else
      call(exec, LinearForward{x, weight.dense, {}, {}, y, options}, workspace);
  }

  /// dx = scale · dy W_i, of one matrix without its adapter.
  void backward_input_one(const Exec& exec, std::size_t i, const TensorRef& dy, const TensorRef& dx,
                          const LinearOptions& options) const {
    const SplitMatrix& weight = weights[i];
    if (weight.is_quantized())
      call(exec, QuantizedLinearBackwardInput{weight.quantized, dy, dx, {.scale = options.scale}, {}, {}},
           workspace);
    else
      call(exec, LinearBackwardInput{weight.dense, dy, dx, options}, workspace);
  }

  /// dxa = s dy B and dx = dy W + dxa A, rounded to T behind each matrix.
  void backward_input(const Exec& exec, const TensorRef& dy, const TensorRef& dx) const {
    TensorRef sum;  // of the matrices before
    each([&](const Part& p) {
      const TensorRef from = p.columns_of_y(dy);
      if (!p.weight.is_quantized()) {
        call(exec, LoraBackwardInput{p.weight.dense, p.a, p.factors(), from, p.dxa, dx, sum});
      } else {
        if (p.rank() > 0) call(exec, LinearBackwardInput{p.b, from, p.dxa, {p.scale}}, workspace);
        call(exec, QuantizedLinearBackwardInput{p.weight.quantized, from, dx, {}, p.terms(p.dxa, p.a), sum},
             workspace);
      }
      sum = dx;
    });
  }

 private:
  struct Part {
    const SplitMatrix& weight;
    std::int64_t column;  // first of y
    double scale;
    TensorRef a, b, xa, dxa;

    std::int64_t rank() const { return b.extent[1]; }
    TensorRef columns_of_y(const TensorRef& y) const { return columns_of(y, column, weight.rows()); }
    LoraFactors factors() const {
      LoraFactors one;
      one.part[one.count++] = {b, 0, scale};
      return one;
    }
    AdapterTerms terms(const TensorRef& left, const TensorRef& right) const {
      return rank() > 0 ? AdapterTerms{left, right} : AdapterTerms{};
    }
  };

  template <class F>
  void each(const F& f) const {
    std::int64_t row = 0;  // of all matrices A
    for (std::size_t i = 0; i < count; ++i) {
      const auto& part = adapter.parts[i];
      const std::int64_t rank = adapted ? static_cast<std::int64_t>(part.b.extent(1)) : 0;
      const auto columns = [&](const TensorRef& t) { return t.present() ? columns_of(t, row, rank) : t; };
      f(Part{weights[i], part.column, part.scale, rows_of(tensor_ref(adapter.a), row, rank),
             columns_of(tensor_ref(part.b), 0, rank), columns(xa), columns(dxa)});
      row += rank;
    }
  }

  void low_rank(const Exec& exec, const TensorRef& x, const Part& p) const {
    if (p.rank() > 0)
      call(exec, LinearForward{x, p.a, {}, {}, p.xa, {.scale = p.scale, .batch_invariant = batch_invariant}},
           workspace);
  }
};

}  // namespace kformer::Impl
