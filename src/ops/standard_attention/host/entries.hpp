// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>

#include "ops/linear/host/entries.hpp"
#include "ops/standard_attention/host/arguments.hpp"
#include "ops/standard_attention/steps.hpp"

/// \file
/// Standard attention on the host: products by the kernels of the linear map, softmax by SIMD kernels.

namespace kformer::Impl::host {

/// A tile of one of the products, its operands moved to where it begins.
template <class T>
struct AttentionProductTile {
  using C = compute_t<T>;

  const MatrixProduct<T, T>& p;
  int rows, cols;
  const T *left, *right;
  T* result;

  AttentionProductTile(const MatrixProduct<T, T>& all, std::int64_t matrix, const ProductTile& tile)
      : p(all), rows(tile.rows), cols(tile.cols) {
    const std::int64_t b = matrix / p.heads, h = matrix % p.heads;
    const auto begin = [&](const Factor<T>& f, std::int64_t index) {
      return f.data + b * f.batch_stride + h / f.head_divisor * f.head_stride + index * f.index_stride;
    };
    left = begin(p.left, tile.row);
    right = begin(p.right, tile.col);
    result = p.result + b * p.batch_stride + h * p.head_stride + tile.row * p.row_stride + tile.col;
  }

  /// Those of one outer index. All rows decide how they are summed: those of a tile depend on the threads.
  ProductArguments arguments(std::int64_t outer) const {
    return {p.rows,
            p.inner,
            {left + outer * p.left.outer_stride, p.left.index_stride, p.left.inner_stride},
            {right + outer * p.right.outer_stride, p.right.index_stride, p.right.inner_stride},
            result,
            p.row_stride,
            nullptr,
            0,
            static_cast<double>(p.alpha)};
  }

  /// Whether the right factor, whose columns are neighbours, is finite.
  bool is_finite(const StandardAttentionKernels& kernels) const {
    for (std::int64_t outer = 0; outer < p.outer; ++outer)
      for (std::int64_t inner = 0; inner < p.inner; ++inner)
        if (!kernels.are_finite(right + outer * p.right.outer_stride + inner * p.right.inner_stride, cols))
          return false;
    return true;
  }

  void multiply(const LinearKernels& kernels, void* scratch, C* sum) const {
    const ProductTile whole{0, 0, rows, cols};
    if (p.outer == 1) return kernels.run(arguments(0), whole, scratch);
    std::fill_n(sum, static_cast<std::ptrdiff_t>(rows) * cols, C(0));
    for (std::int64_t outer = 0; outer < p.outer; ++outer) {
      ProductArguments a = arguments(outer);
      a.result = sum;
      a.addend = sum;
      a.row_stride = a.addend_row_stride = cols;
      kernels.run_summed(a, whole, scratch);
    }
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) result[i * p.row_stride + j] = T(sum[i * cols + j]);
  }

  /// A zero of the left factor hides what is not finite in the right one. Rare, and slow.
  void multiply_what_is_seen() const {
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j) {
        C sum = 0;
        for (std::int64_t outer = 0; outer < p.outer; ++outer)
          for (std::int64_t inner = 0; inner < p.inner; ++inner) {
            const C factor = static_cast<C>(
                left[i * p.left.index_stride + outer * p.left.outer_stride + inner * p.left.inner_stride]);
            if (factor != 0)
              sum += factor * static_cast<C>(right[j * p.right.index_stride + outer * p.right.outer_stride +
                                                   inner * p.right.inner_stride]);
          }
        result[i * p.row_stride + j] = T(p.alpha * sum);
      }
  }
};

template <class Exec, Isa isa>
struct SimdAttentionSteps {
  const Exec& exec;
  const char* function;

  std::string label(const char* step) const {
    return std::string("kformer::") + function + '_' + step + '[' + simd_entry<isa> + ']';
  }

  template <Zeros zeros, class T>
  void product(const char* step, const MatrixProduct<T, T>& p) const {
    using C = compute_t<T>;
    const std::int64_t matrices = p.batches * p.heads;
    if (matrices == 0) return;
    const LinearKernels& kernels = linear_kernels<built<isa>>(dtype_of<T>);
    const StandardAttentionKernels& own = standard_attention_kernels<built<isa>>(dtype_of<T>);
    const LinearTiles tiles(p.rows, p.cols, kernels,
                            static_cast<int>(ceil_div<std::int64_t>(exec.concurrency(), matrices)),
                            packs<isa>(p.left));
    const std::size_t packed =
        ceil_div(kernels.scratch(static_cast<int>(tiles.rows), static_cast<int>(tiles.cols)),
                 scratch_alignment) *
        scratch_alignment;
    const std::size_t sums = p.outer == 1 ? 0 : static_cast<std::size_t>(tiles.rows * tiles.cols) * sizeof(C);
    for_each_product_tile(label(step).c_str(), exec, matrices, p.rows, p.cols, tiles, packed + sums,
                          [=](std::int64_t matrix, const ProductTile& tile, void* scratch) {
                            const AttentionProductTile<T> part(p, matrix, tile);
                            if (zeros == Zeros::annihilate && !part.is_finite(own))
                              part.multiply_what_is_seen();
                            else
                              part.multiply(kernels, scratch,
                                            reinterpret_cast<C*>(static_cast<std::byte*>(scratch) + packed));
                          });
  }

  template <class T>
  void softmax(const StandardAttentionForward& p) const {
    const SoftmaxRows<T> rows = softmax_rows<T>(p);
    if (rows.kv_len == 0) return;
    for_each_piece(label("softmax").c_str(), exec, p.q.extent[0] * rows.heads * rows.q_len,
                   piece_of_rows(rows.kv_len),
                   [=, run = standard_attention_kernels<built<isa>>(dtype_of<T>).softmax](std::int64_t first,
                                                                                          std::int64_t end) {
                     for (std::int64_t row = first; row < end; ++row) {
                       const std::int64_t i = row % rows.q_len, bh = row / rows.q_len;
                       run({rows.scores + row * rows.kv_len,
                            rows.masked ? &rows.mask(bh / rows.heads, bh % rows.heads, i, 0) : nullptr,
                            rows.kv_len, rows.visibility.first(i), rows.visibility.end(i)});
                     }
                   });
  }

  template <class T>
  void score_gradient(const T* probabilities, T* gradient, std::int64_t rows, std::int64_t kv_len) const {
    if (kv_len == 0) return;
    for_each_piece(label("scores").c_str(), exec, rows, piece_of_rows(kv_len),
                   [=, run = standard_attention_kernels<built<isa>>(dtype_of<T>).score_gradient](
                       std::int64_t first, std::int64_t end) {
                     for (std::int64_t row = first; row < end; ++row)
                       run(probabilities + row * kv_len, gradient + row * kv_len, kv_len);
                   });
  }
};

template <class Exec, Isa isa>
struct StandardAttentionForwardEntry {
  using P = StandardAttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) { return refusal<isa>(p.q.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      standard_attention_forward_by<T>(SimdAttentionSteps<Exec, isa>{exec, P::function}, p);
    });
  }
};

template <class Exec, Isa isa>
struct StandardAttentionBackwardEntry {
  using P = StandardAttentionBackward;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject, standard_attention_backward_workspace, run};
  }

  static std::string reject(const P& p) { return refusal<isa>(p.q.dtype); }

  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) {
      standard_attention_backward_by<T>(SimdAttentionSteps<Exec, isa>{exec, P::function}, p, workspace);
    });
  }
};

}  // namespace kformer::Impl::host
