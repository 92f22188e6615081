// SPDX-License-Identifier: MIT
#pragma once

#include "ops/linear/host/amx/kernels.hpp"
#include "ops/linear/host/amx/processor.hpp"
#include "ops/linear/host/entries.hpp"

/// \file
/// Products of bf16 on the tile registers of AMX, for the entries of kernel lists.

namespace kformer::Impl::host {

/// As `SimdProducts`. What is no product of tiles, packing and few rows, uses AVX-512.
struct AmxProducts {
  static constexpr Isa vectors = Isa::avx512;
  static constexpr const char* name = "simd_amx_bf16";

  static std::string refusal(DType storage) {
    if (storage != DType::bf16)
      return std::string("operands are stored as ") + to_string(storage) + ", but it supports only bf16";
    const std::string refused = processor_refusal<vectors>();
    return refused.empty() ? amx_refusal() : refused;
  }

  static const LinearKernels& kernels([[maybe_unused]] DType storage) {
    if constexpr (is_built<vectors>)
      return amx_linear_kernels();
    else
      return linear_kernels<built<vectors>>(storage);
  }
};

/// An entry with these products; it runs on hosts only.
template <class Entry, class P, class Exec>
constexpr auto amx_entries() {
  if constexpr (is_host_space<Exec>)
    return std::array<Kernel<P, Exec>, 1>{{Entry::entry()}};
  else
    return std::array<Kernel<P, Exec>, 0>{};
}

}  // namespace kformer::Impl::host
