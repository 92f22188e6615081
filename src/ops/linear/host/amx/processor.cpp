// SPDX-License-Identifier: MIT
#include "ops/linear/host/amx/processor.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#endif
#endif

namespace kformer::Impl::host {

namespace {

constexpr std::uint32_t amx_for_bf16 = std::uint32_t(1) << 22 | std::uint32_t(1) << 24;
constexpr std::uint64_t tile_state = std::uint64_t(1) << 17 | std::uint64_t(1) << 18;

bool all_of(std::uint64_t bits, std::uint64_t wanted) { return (bits & wanted) == wanted; }

#if defined(__x86_64__)
std::uint64_t read_xcr0() {
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  constexpr std::uint32_t osxsave = std::uint32_t(1) << 27;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave) == 0) return 0;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return std::uint64_t(d) << 32 | a;
}

/// The system saves 8 KiB more for a thread that uses tiles, and only where it was asked before.
std::string ask_for_tiles() {
#if defined(__linux__)
  constexpr long request_permission = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM; older headers lack it
  if (::syscall(SYS_arch_prctl, request_permission, tile_data) == 0) return {};
  return std::string("the request ARCH_REQ_XCOMP_PERM failed: ") + std::strerror(errno);
#else
  return "it is not Linux";
#endif
}
#endif

}  // namespace

AmxState AmxState::of_process() {
  AmxState state;
#if defined(__x86_64__)
  std::uint32_t a = 0, b = 0, c = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &state.features)) state.features = 0;
  state.enabled = read_xcr0();
  if (state.refusal().empty()) state.denied = ask_for_tiles();
#endif
  return state;
}

std::string AmxState::refusal() const {
  if (!all_of(features, amx_for_bf16)) return "this processor has no AMX for bf16 (AMX-TILE, AMX-BF16)";
  if (!all_of(enabled, tile_state)) return "the system does not enable the tile registers of AMX";
  if (!denied.empty()) return "the system gives this process no tile registers of AMX: " + denied;
  return {};
}

const std::string& amx_refusal() {
  static const std::string refusal = AmxState::of_process().refusal();
  return refusal;
}

}  // namespace kformer::Impl::host
