// SPDX-License-Identifier: MIT
#pragma once

#include <climits>

#include "ops/common/label.hpp"
#include "ops/linear/openblas.hpp"
#include "ops/linear/product.hpp"

/// \file
/// The products on the host through a BLAS: one call per tile of the result, the tiles shared out by Kokkos.
/// 16-bit operands are converted to float panel by panel.
///
/// The BLAS must allow calls from several threads at once and should start none of its own
/// (docs/blocks/linear.md). Of OpenBLAS it is known which builds do.

extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
            const double* beta, double* c, const int* ldc);
#ifdef KFORMER_BLAS_IS_OPENBLAS
char* openblas_get_config(void);
int openblas_get_parallel(void);
int openblas_get_num_threads(void);
#endif
}

namespace kformer::Impl {

/// A factor as BLAS sees it: lines of contiguous elements, either one per result index (the summed index runs
/// along the line) or one per summed index.
template <class T>
struct Lines {
  const T* data;
  std::int64_t distance;  ///< elements between lines
  bool along_sum;         ///< the summed index runs along a line

  Lines(const T* first, std::int64_t line_distance, bool summed)
      : data(first), distance(line_distance), along_sum(summed) {}
  explicit Lines(const Factor<T>& f)
      : Lines(f.data, f.inner_stride == 1 ? f.index_stride : f.inner_stride, f.inner_stride == 1) {}

  /// The part that starts at this result index and summed index.
  Lines from(std::int64_t index, std::int64_t inner) const {
    return {data + (along_sum ? index * distance + inner : inner * distance + index), distance, along_sum};
  }
};

inline void gemm(const char* ta, const char* tb, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  sgemm_(ta, tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}
inline void gemm(const char* ta, const char* tb, int m, int n, int k, double alpha, const double* a, int lda,
                 const double* b, int ldb, double beta, double* c, int ldc) {
  dgemm_(ta, tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc);
}

/// result(row, col) = alpha · Σ_k left(row, k) · right(col, k) + beta · result(row, col), row by row in memory;
/// to BLAS, which counts along columns, that is resultᵀ = right · leftᵀ.
template <class C>
void blas_product(std::int64_t rows, std::int64_t cols, std::int64_t inner, const Lines<C>& left,
                  const Lines<C>& right, C alpha, C beta, C* result, std::int64_t row_stride) {
  // BLAS requires the distance of lines to be at least their length, even for a single line.
  auto leading = [](std::int64_t distance, std::int64_t length) {
    return static_cast<int>(std::max<std::int64_t>({distance, length, 1}));
  };
  const OneBlasThread one;
  gemm(right.along_sum ? "T" : "N", left.along_sum ? "N" : "T", static_cast<int>(cols), static_cast<int>(rows),
       static_cast<int>(inner), alpha, right.data, leading(right.distance, right.along_sum ? inner : cols),
       left.data, leading(left.distance, left.along_sum ? inner : rows), beta, result,
       leading(row_stride, cols));
}

/// The tiles of the result, one BLAS call each (or one per panel); they depend on the problem alone.
struct BlasTiles {
  std::int64_t rows = 256, cols = 512;

  BlasTiles(std::int64_t all_rows, std::int64_t all_cols) {
    // Enough tiles to occupy many cores, as long as a tile is large enough to run at full speed.
    while (ceil_div(all_rows, rows) * ceil_div(all_cols, cols) < 16 && rows * cols > 64 * 128)
      (cols > rows ? cols : rows) /= 2;
  }
};

/// Why BLAS cannot do this, or nothing.
template <class T, class O>
std::string blas_refusal(const MatrixProduct<T, O>& p) {
  if (p.batch_invariant) return not_batch_invariant;
  // A named array: nvcc 13 garbles a range-for over a braced list in a template.
  const std::int64_t sizes[] = {p.rows,
                                p.cols,
                                p.inner,
                                p.left.index_stride,
                                p.left.inner_stride,
                                p.right.index_stride,
                                p.right.inner_stride,
                                p.row_stride};
  for (const std::int64_t n : sizes)
    if (n > INT_MAX) return "an extent or stride of " + std::to_string(n) + " does not fit the int of BLAS";
  auto overlaps = [&](const Factor<T>& f, std::int64_t indices) {
    const Lines<T> lines(f);
    const std::int64_t count = lines.along_sum ? indices : p.inner,
                       length = lines.along_sum ? p.inner : indices;
    return count > 1 && lines.distance < length;
  };
  if (overlaps(p.left, p.rows) || overlaps(p.right, p.cols) || (p.rows > 1 && p.row_stride < p.cols))
    return "rows overlap, which BLAS does not allow";
  return {};
}

/// Why the BLAS that was linked must not be called by the threads of `Exec`, or nothing.
template <class Exec>
std::string blas_threads_refusal() {
  static const std::string limited = limited_memory_refusal();
  if (!limited.empty()) return limited;
#ifdef KFORMER_BLAS_IS_OPENBLAS
  const std::string_view space = Exec::name();
  if (space == "Serial") return {};
  const OpenBlas blas{openblas_get_config(), openblas_get_parallel(), openblas_get_num_threads()};
  return concurrent_calls_refusal(blas, space == "OpenMP");
#else
  return {};
#endif
}

/// Float and double: BLAS reads the operands where they are.
template <class C, class Exec>
  requires std::is_same_v<C, compute_t<C>>
void blas_matmul(const std::string& label, const Exec& exec, const MatrixProduct<C, C>& p) {
  const BlasTiles tile(p.rows, p.cols);
  const std::int64_t row_tiles = ceil_div(p.rows, tile.rows), tiles = row_tiles * ceil_div(p.cols, tile.cols);
  if (tiles == 0) return;
  Kokkos::parallel_for(label, team_policy(exec, tiles, 1), [=](const TeamMember<Exec>& team) {
    const std::int64_t row0 = team.league_rank() % row_tiles * tile.rows;
    const std::int64_t col0 = team.league_rank() / row_tiles * tile.cols;
    const std::int64_t rows = std::min(tile.rows, p.rows - row0), cols = std::min(tile.cols, p.cols - col0);
    C* result = p.result + row0 * p.row_stride + col0;
    if (p.addend && p.addend != p.result)
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(p.addend + (row0 + r) * p.addend_row_stride + col0, cols, result + r * p.row_stride);
    blas_product(rows, cols, p.inner, Lines(p.left).from(row0, 0), Lines(p.right).from(col0, 0), p.alpha,
                 C(p.addend ? 1 : 0), result, p.row_stride);
  });
}

/// Part of a factor, `indices` × `inner`, converted to float in `panel`.
template <class T>
Lines<float> converted(const Lines<T>& part, std::int64_t indices, std::int64_t inner, float* panel) {
  const std::int64_t count = part.along_sum ? indices : inner, length = part.along_sum ? inner : indices;
  for (std::int64_t line = 0; line < count; ++line) {
    const T* KOKKOS_RESTRICT source = part.data + line * part.distance;
    float* KOKKOS_RESTRICT target = panel + line * length;
    for (std::int64_t i = 0; i < length; ++i) target[i] = static_cast<float>(source[i]);
  }
  return {panel, length, part.along_sum};
}

/// 16-bit storage: panels of both operands are converted to float scratch, and a float tile sums them.
template <class T, class O, class Exec>
  requires(sizeof(T) == 2)
void blas_matmul(const std::string& label, const Exec& exec, const MatrixProduct<T, O>& p) {
  constexpr std::int64_t depth = 512;
  const BlasTiles tile(p.rows, p.cols);
  const std::int64_t row_tiles = ceil_div(p.rows, tile.rows), tiles = row_tiles * ceil_div(p.cols, tile.cols);
  if (tiles == 0) return;
  const std::int64_t floats = (tile.rows + tile.cols) * depth + tile.rows * tile.cols;
  auto policy = team_policy(exec, tiles, 1);
  policy.set_scratch_size(1, Kokkos::PerTeam(floats * sizeof(float) + 64));
  Kokkos::parallel_for(label, policy, [=](const TeamMember<Exec>& team) {
    auto* left = static_cast<float*>(team.team_scratch(1).get_shmem_aligned(floats * sizeof(float), 64));
    float* right = left + tile.rows * depth;
    float* sum = right + tile.cols * depth;
    const std::int64_t row0 = team.league_rank() % row_tiles * tile.rows;
    const std::int64_t col0 = team.league_rank() / row_tiles * tile.cols;
    const std::int64_t rows = std::min(tile.rows, p.rows - row0), cols = std::min(tile.cols, p.cols - col0);
    std::fill_n(sum, rows * cols, 0.0f);
    for (std::int64_t inner = 0; inner < p.inner; inner += depth) {
      const std::int64_t count = std::min(depth, p.inner - inner);
      blas_product(rows, cols, count, converted(Lines(p.left).from(row0, inner), rows, count, left),
                   converted(Lines(p.right).from(col0, inner), cols, count, right), 1.0f, 1.0f, sum, cols);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      O* to = p.result + (row0 + r) * p.row_stride + col0;
      const O* more = p.addend ? p.addend + (row0 + r) * p.addend_row_stride + col0 : nullptr;
      for (std::int64_t c = 0; c < cols; ++c)
        to[c] = O(p.alpha * sum[r * cols + c] + (more ? static_cast<float>(more[c]) : 0.0f));
    }
  });
}

/// The list entry, on host spaces.
template <class P, class Exec>
constexpr auto host_blas_entries() {
  if constexpr (is_host_space<Exec>)
    return std::array<Kernel<P, Exec>, 1>{
        {{"host_blas",
          [](const P& p) {
            const std::string threads = blas_threads_refusal<Exec>();
            return threads.empty() ? with_product(p, [](const auto& q) { return blas_refusal(q); }) : threads;
          },
          no_workspace<P>,
          [](const Exec& exec, const P& p, const Workspace&) {
            with_each_product(p, [&](const auto& q) { blas_matmul(label<P>("host_blas"), exec, q); });
          }}}};
  else
    return std::array<Kernel<P, Exec>, 0>{};
}

}  // namespace kformer::Impl
