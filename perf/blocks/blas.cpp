// SPDX-License-Identifier: MIT
#include "blocks/blas.hpp"

extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
#ifdef KFORMER_PERF_OPENBLAS
int openblas_get_parallel(void);
int openblas_get_num_threads(void);
void openblas_set_num_threads(int count);
#endif
}

namespace kformer::perf {

namespace {

#ifdef KFORMER_PERF_OPENBLAS
// The library keeps OpenBLAS single-threaded; during the lifetime of this object it may start threads.
class BlasThreads {
 public:
  explicit BlasThreads(int count) { openblas_set_num_threads(count); }
  ~BlasThreads() { openblas_set_num_threads(m_before); }
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;

 private:
  int m_before = openblas_get_num_threads();
};
#else
struct BlasThreads {
  explicit BlasThreads(int) {}
};
#endif

}  // namespace

bool blas_can_use([[maybe_unused]] int threads) {
#ifdef KFORMER_PERF_OPENBLAS
  return threads == 1 || openblas_get_parallel() != 0;
#else
  return true;
#endif
}

// BLAS counts along columns: to it, every matrix here is its transpose, and resultᵀ = rightᵀ · leftᵀ.
void blas_product(int threads, std::int64_t rows, std::int64_t columns, std::int64_t inner,
                  const BlasFactor& left, const BlasFactor& right, float beta, float* result) {
  const BlasThreads all(threads);
  const int m = static_cast<int>(columns), n = static_cast<int>(rows), k = static_cast<int>(inner);
  const int lda = static_cast<int>(right.columns), ldb = static_cast<int>(left.columns);
  const float one = 1;
  sgemm_(right.transposed ? "T" : "N", left.transposed ? "T" : "N", &m, &n, &k, &one, right.data, &lda,
         left.data, &ldb, &beta, result, &m);
}

}  // namespace kformer::perf
