// SPDX-License-Identifier: MIT
#pragma once

#include <sys/resource.h>

#include <string>
#include <string_view>
#ifdef _OPENMP
#include <omp.h>
#endif

/// \file
/// Which builds of OpenBLAS may be called from the threads of Kokkos, and how they are kept to one thread.

namespace kformer::Impl {

/// What OpenBLAS says of itself.
struct OpenBlas {
  std::string_view config;  ///< openblas_get_config()
  int parallel;             ///< openblas_get_parallel(): 0 single-threaded, 1 pthreads, 2 OpenMP
  int threads;              ///< openblas_get_num_threads()
};

/// Why several threads must not call it at once, or nothing. `from_openmp`: the calls come from within OpenMP
/// parallel regions, where an OpenMP build starts no threads.
inline std::string concurrent_calls_refusal(const OpenBlas& blas, bool from_openmp) {
  auto says = [&](const char* word) { return blas.config.find(word) != std::string_view::npos; };
  // Its calls share packing buffers without a lock. Releases before 0.3.28 do not report USE_LOCKING.
  if (blas.parallel == 0 && !says("USE_LOCKING"))
    return "this single-threaded OpenBLAS computes wrong numbers when several threads call it; use its OpenMP "
           "build, or one built with USE_LOCKING=1 (0.3.28 or newer)";
  if (blas.threads > 1 && !(blas.parallel == 2 && from_openmp))
    return "this OpenBLAS would start threads beside those of Kokkos; set OPENBLAS_NUM_THREADS=1";
  return {};
}

/// Why no BLAS must be called where the address space is limited, or nothing: OpenBLAS reserves 128 MiB for each
/// thread that calls it, and waits for ever for what it does not get.
inline std::string limited_memory_refusal() {
  rlimit limit{};
  const bool limited = ::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return limited ? "a BLAS may wait for ever for memory where the address space is limited (ulimit -v)" : "";
}

#ifdef _OPENMP
/// While it lives, an OpenMP build of BLAS starts no threads for this one. Within a parallel region it starts
/// none anyway, but neither a region of one thread nor the Serial space counts as such, and there its threads
/// would change the order of sums.
class OneBlasThread {
 public:
  OneBlasThread() { omp_set_num_threads(1); }
  ~OneBlasThread() { omp_set_num_threads(m_before); }
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;

 private:
  int m_before = omp_get_max_threads();
};
#else
struct OneBlasThread {
  OneBlasThread() {}
};
#endif

}  // namespace kformer::Impl
