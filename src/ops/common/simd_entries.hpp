// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <string>

#include "kformer/core/scalar.hpp"
#include "kformer/ops/impl/launch.hpp"
#include "ops/common/simd/isa.hpp"

/// \file
/// What the entries of host kernel lists need to run SIMD kernels: the processor's answer, and launches of
/// work in pieces, one thread each.

namespace kformer::Impl::host {

template <Isa isa>
inline constexpr const char* simd_entry = isa == Isa::avx512_bf16   ? "simd_avx512_bf16"
                                          : isa == Isa::avx512_vnni ? "simd_avx512_vnni"
                                          : isa == Isa::avx512      ? "simd_avx512"
                                          : isa == Isa::avx2        ? "simd_avx2"
                                                                    : "simd_generic";

/// Empty if this processor has the instruction set, else a sentence.
template <Isa isa>
std::string processor_refusal() {
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx512_bf16 && !(avx512 && __builtin_cpu_supports("avx512bf16")))
    return "this processor has no AVX512_BF16";
  if (isa == Isa::avx512_vnni && !(avx512 && __builtin_cpu_supports("avx512vnni")))
    return "this processor has no AVX512_VNNI";
  if (isa == Isa::avx512 && !avx512) return "this processor has no AVX-512 (F, BW, DQ, VL)";
  if (isa == Isa::avx2 &&
      !(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")))
    return "this processor has no AVX2 with FMA and F16C";
#else
  if (!is_built<isa>) return "this is not an x86 processor";
#endif
  return {};
}

/// Whether `vdpbf16ps` makes products faster than multiply-adds of the same numbers as floats. On the processors of
/// Intel that have it, it runs at half their rate (docs/performance.md, "bf16 on Intel"); on Zen 4 at twice.
inline bool has_fast_bf16_pairs() {
#if defined(__x86_64__)
  return !__builtin_cpu_is("intel");
#else
  return true;
#endif
}

/// Empty if this processor has the instruction set and the instruction set takes the storage type, else a
/// sentence.
template <Isa isa>
std::string refusal(DType storage) {
  if (isa == Isa::avx512_bf16 && storage != DType::bf16)
    return std::string("operands are stored as ") + to_string(storage) + ", but it supports only bf16";
  return processor_refusal<isa>();
}

/// The refusal of an entry that takes every problem.
template <Isa isa, class Problem>
std::string reject_processor(const Problem&) {
  return processor_refusal<isa>();
}

template <class Exec>
using DynamicTeams = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;

inline constexpr std::size_t scratch_alignment = 64;

/// `f(rank, scratch)` for every rank below `league`, one thread each, handed out one by one.
template <class Exec, class F>
void for_each_tile(const char* label, const Exec& exec, std::int64_t league, std::size_t scratch_bytes, F f) {
  if (league == 0) return;
  DynamicTeams<Exec> policy(exec, static_cast<int>(league), 1);
  policy.set_chunk_size(1);
  policy.set_scratch_size(1, Kokkos::PerTeam(scratch_bytes + scratch_alignment));
  Kokkos::parallel_for(label, policy, [=](const typename DynamicTeams<Exec>::member_type& team) {
    f(team.league_rank(), team.team_scratch(1).get_shmem_aligned(scratch_bytes, scratch_alignment));
  });
}

/// Empty if a tile of `bytes` fits what Kokkos can give a thread.
template <class Exec>
std::string too_big(std::size_t bytes) {
  const auto most = static_cast<std::size_t>(DynamicTeams<Exec>::scratch_size_max(1));
  if (bytes + scratch_alignment <= most) return {};
  return "its tiles need " + std::to_string(bytes + scratch_alignment) +
         " bytes of scratch memory, but Kokkos has " + std::to_string(most);
}

/// `f(begin, end)` for pieces of [0, count) of `length` each, in turn to the threads: work of even cost that
/// needs no scratch.
template <class Exec, class F>
void for_each_piece(const char* label, const Exec& exec, std::int64_t count, std::int64_t length, F f) {
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(exec, 0, ceil_div(count, length)),
                       [=](std::int64_t piece) { f(piece * length, std::min(count, (piece + 1) * length)); });
}

/// Elements in a piece of work: enough to pay for a call, few enough that many threads find work.
inline constexpr std::int64_t piece_elements = 16384;

/// The length of pieces of rows with `row_elements` each.
inline std::int64_t piece_of_rows(std::int64_t row_elements) {
  return std::max<std::int64_t>(1, piece_elements / std::max<std::int64_t>(1, row_elements));
}

/// Whether outputs of a launch that touches `bytes` of memory should bypass the caches: they would
/// not stay there until the next launch, and a non-temporal store needs no read before. The limit is about
/// the share of the last-level caches of one processor for a few threads.
inline bool exceeds_caches(std::int64_t bytes) { return bytes > std::int64_t(32) << 20; }

}  // namespace kformer::Impl::host
