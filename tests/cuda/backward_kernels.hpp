// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/cuda/entries.hpp"
#include "ops/attention_cases.hpp"

/// \file
/// What tests of kernels of attention backward on tensor cores share.

namespace kformer::Testing {

/// `test` with the tiles of each size of shared memory. A device has its own alone.
template <class F>
void with_tiles_of_each_memory(F test) {
  test();
#if !defined(KOKKOS_ENABLE_CUDA)
  int& capability = Impl::cuda::Device<Exec>::emulated_capability;
  const int before = capability;
  capability = 80;
  test();
  capability = before;
#endif
}

/// Why a kernel does not take a problem that `change` has changed.
template <class T, class Kernel, class Change>
std::string refusal_of_backward(const Kernel& kernel, const AttentionCase& c, Change change) {
  AttentionTensors<T> t(c, Rows::aligned);
  Impl::AttentionBackward p = t.backward_problem();
  change(p);
  return kernel.reject(p);
}

}  // namespace kformer::Testing
