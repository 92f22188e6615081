// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__CUDACC__)
#include <bit>
#include <cmath>
#include <limits>

#include "emulated_cuda/emulation.hpp"
#endif

/// \file
/// What CUDA kernels use of the machine, one function per instruction: PTX where nvcc compiles, the emulated
/// block elsewhere. Registers of matrix fragments are laid out as the PTX ISA has them (section 9.7.14).

#if defined(__CUDACC__)
#define KFORMER_DEVICE __device__ __forceinline__
#define KFORMER_DEVICE_CALL __device__ __noinline__
#define KFORMER_DEVICE_CONSTANT __device__ constexpr
#define KFORMER_DEVICE_UNROLL _Pragma("unroll")
#define KFORMER_DEVICE_NO_UNROLL _Pragma("unroll 1")
#else
#define KFORMER_DEVICE inline
#define KFORMER_DEVICE_CALL inline
#define KFORMER_DEVICE_CONSTANT constexpr
#define KFORMER_DEVICE_UNROLL
#define KFORMER_DEVICE_NO_UNROLL
#endif

namespace kformer::Impl::cuda {

/// The 16-bit types that tensor cores multiply.
enum class Half { bf16, f16 };

/// 4, 8 or 16 bytes of memory: one access.
template <int n>
struct alignas(4 * n) Words {
  std::uint32_t word[n];
};

using Chunk = Words<4>;

/// A place in the shared memory of the block, in bytes.
using SharedAddress = std::uint32_t;

#if defined(__CUDACC__)

KFORMER_DEVICE int thread_index() { return static_cast<int>(threadIdx.x); }
KFORMER_DEVICE int block_index() { return static_cast<int>(blockIdx.x); }
/// Where the dynamic shared memory begins.
KFORMER_DEVICE SharedAddress shared_begin() {
  extern __shared__ __align__(128) unsigned char kformer_shared[];
  return static_cast<SharedAddress>(__cvta_generic_to_shared(kformer_shared));
}
template <class T>
KFORMER_DEVICE T load_shared(SharedAddress from) {
  return *static_cast<const T*>(__cvta_shared_to_generic(from));
}
template <class T>
KFORMER_DEVICE void store_shared(SharedAddress to, const T& value) {
  *static_cast<T*>(__cvta_shared_to_generic(to)) = value;
}
/// At a multiple of the size.
template <int n>
KFORMER_DEVICE Words<n> load_words(const void* from) {
  return *static_cast<const Words<n>*>(from);
}
template <int n>
KFORMER_DEVICE void store_words(void* to, const Words<n>& words) {
  *static_cast<Words<n>*>(to) = words;
}
KFORMER_DEVICE void block_barrier() { __syncthreads(); }
/// Whether it is so for any thread of the block; a barrier.
KFORMER_DEVICE bool any_of_block(bool mine) { return __syncthreads_or(mine) != 0; }

/// Waits for the other threads of the warp, and what they wrote before is seen after it.
KFORMER_DEVICE void warp_barrier() { __syncwarp(); }

/// Copies the first `bytes` of 16 past the registers, and zeros for the rest, which is not read.
KFORMER_DEVICE void copy_async(SharedAddress to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
/// All 16 bytes; zeros where `present` is false, and nothing is read then.
KFORMER_DEVICE void copy_async(SharedAddress to, const void* from, bool present) {
  copy_async(to, from, present ? 16 : 0);
}
KFORMER_DEVICE void commit_copies() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
/// Waits for all but the last `left` groups of this thread's copies.
template <int left>
KFORMER_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(left) : "memory");
}

/// Four 8 × 8 matrices of 16-bit numbers; lanes 8i to 8i + 7 give the addresses of the rows of matrix i. Lane l
/// gets elements 2(l mod 4) and 2(l mod 4) + 1 of row l/4 of matrix i in register i.
KFORMER_DEVICE void load_matrices(std::uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
/// The same of the transposed matrices.
KFORMER_DEVICE void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(row)
               : "memory");
}
/// c (16 × 8) += a (16 × 16) · b (16 × 8), sums in float.
template <Half type>
KFORMER_DEVICE void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                 std::uint32_t b1) {
  if constexpr (type == Half::bf16)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// Two numbers rounded to nearest, `low` in the low half.
template <Half type>
KFORMER_DEVICE std::uint32_t pack(float low, float high) {
  std::uint32_t r;
  if constexpr (type == Half::bf16)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <Half type>
KFORMER_DEVICE float unpack(std::uint16_t bits) {
  float x;
  if constexpr (type == Half::bf16)
    x = __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
  else
    asm("cvt.f32.f16 %0, %1;\n" : "=f"(x) : "h"(bits));
  return x;
}
/// 2ˣ, within 2 ulp; subnormal results are 0.
KFORMER_DEVICE float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
KFORMER_DEVICE float accurate_tanh(float x) { return tanhf(x); }
KFORMER_DEVICE constexpr float not_a_number() { return __builtin_nanf(""); }
KFORMER_DEVICE double square_root(double x) { return sqrt(x); }
KFORMER_DEVICE double shuffle_xor(double x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
KFORMER_DEVICE float bits_as_float(std::uint32_t bits) { return __uint_as_float(bits); }
KFORMER_DEVICE std::uint32_t float_as_bits(float x) { return __float_as_uint(x); }
KFORMER_DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffffu, x, lanes); }
KFORMER_DEVICE std::uint32_t shuffle(std::uint32_t x, int lane) { return __shfl_sync(0xffffffffu, x, lane); }
/// The largest of the 32 lanes of a warp, in each.
KFORMER_DEVICE std::uint32_t largest_of_warp(std::uint32_t x) {
  std::uint32_t y;
  asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;\n" : "=r"(y) : "r"(x));
  return y;
}
/// The lanes of a warp for which it holds, a bit each.
KFORMER_DEVICE std::uint32_t lanes_of_warp(bool mine) { return __ballot_sync(0xffffffffu, mine); }
KFORMER_DEVICE int bits_set(std::uint32_t x) { return __popc(x); }
/// The same number, hidden from the optimiser. It then computes expressions of it inside a loop, not before the
/// loop, where the results would occupy registers throughout.
KFORMER_DEVICE int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}
KFORMER_DEVICE float opaque(float x) {
  asm volatile("" : "+f"(x));
  return x;
}
KFORMER_DEVICE Chunk opaque(Chunk x) {
  asm volatile("" : "+r"(x.word[0]), "+r"(x.word[1]), "+r"(x.word[2]), "+r"(x.word[3]));
  return x;
}
KFORMER_DEVICE float largest(float a, float b) { return fmaxf(a, b); }
KFORMER_DEVICE float natural_log(float x) { return logf(x); }
/// Rounded to nearest.
KFORMER_DEVICE float square_root(float x) { return sqrtf(x); }
/// eˣ, within 2 ulp; subnormal results are kept.
KFORMER_DEVICE float exponential(float x) { return expf(x); }
/// 1/x, within 1 ulp; subnormal results are 0.
KFORMER_DEVICE float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}
/// a · b + c, rounded once.
KFORMER_DEVICE float fused_multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
KFORMER_DEVICE constexpr float infinity() { return __builtin_huge_valf(); }
/// a · b, rounded before anything is added to it.
KFORMER_DEVICE float rounded_product(float a, float b) { return __fmul_rn(a, b); }
/// The nearest integer, halves to the even one.
KFORMER_DEVICE int nearest_integer(float x) { return __float2int_rn(x); }
/// sum + Σ aᵢ · bᵢ of the four signed bytes of a and b.
KFORMER_DEVICE int add_byte_products(std::uint32_t a, std::uint32_t b, int sum) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
}
/// Byte i is the one that nibble i of the selector counts, of those of `low` (0 to 3) and `high` (4 to 7).
KFORMER_DEVICE std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  return __byte_perm(low, high, selector);
}
/// 32 bits of the 64 from bit `bits` on, which is below 32.
KFORMER_DEVICE std::uint32_t shift_right(std::uint32_t low, std::uint32_t high, int bits) {
  return __funnelshift_r(low, high, bits);
}

#else

inline int thread_index() { return emulation::Block::current().thread(); }
inline int block_index() { return emulation::Block::current().number(); }
inline SharedAddress shared_begin() { return 0; }
template <class T>
T load_shared(SharedAddress from) {
  T value;
  std::memcpy(&value, emulation::Block::current().shared(from, sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void store_shared(SharedAddress to, const T& value) {
  std::memcpy(emulation::Block::current().shared(to, sizeof(T)), &value, sizeof(T));
}
template <int n>
Words<n> load_words(const void* from) {
  emulation::Block::check_global(from, sizeof(Words<n>));
  Words<n> words;
  std::memcpy(&words, from, sizeof(words));
  return words;
}
template <int n>
void store_words(void* to, const Words<n>& words) {
  emulation::Block::check_global(to, sizeof(Words<n>));
  std::memcpy(to, &words, sizeof(words));
}
void block_barrier();
bool any_of_block(bool mine);
void warp_barrier();
void copy_async(SharedAddress to, const void* from, int bytes);
inline void copy_async(SharedAddress to, const void* from, bool present) {
  copy_async(to, from, present ? 16 : 0);
}
inline void commit_copies() { emulation::Block::current().commit_group(); }
template <int left>
void wait_copies() {
  emulation::Block::current().wait_groups(left);
}
void load_matrices(std::uint32_t (&r)[4], SharedAddress row);
void load_matrices_transposed(std::uint32_t (&r)[4], SharedAddress row);
template <Half type>
std::uint32_t pack(float low, float high);
template <Half type>
float unpack(std::uint16_t bits);
template <Half type>
void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
}
inline float accurate_tanh(float x) { return std::tanh(x); }
constexpr float not_a_number() { return std::numeric_limits<float>::quiet_NaN(); }
inline double square_root(double x) { return std::sqrt(x); }
double shuffle_xor(double x, int lanes);
inline float bits_as_float(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}
inline std::uint32_t float_as_bits(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(x));
  return bits;
}
float shuffle_xor(float x, int lanes);
std::uint32_t shuffle(std::uint32_t x, int lane);
std::uint32_t largest_of_warp(std::uint32_t x);
std::uint32_t lanes_of_warp(bool mine);
inline int bits_set(std::uint32_t x) { return std::popcount(x); }
inline int opaque(int x) { return x; }
inline float opaque(float x) { return x; }
inline Chunk opaque(const Chunk& x) { return x; }
inline float largest(float a, float b) { return std::fmax(a, b); }
inline float natural_log(float x) { return std::log(x); }
inline float square_root(float x) { return std::sqrt(x); }
inline float exponential(float x) { return std::exp(x); }
inline float reciprocal_fast(float x) {
  const float y = 1 / x;
  return std::fabs(y) < std::numeric_limits<float>::min() ? std::copysign(0.0f, y) : y;
}
inline float fused_multiply_add(float a, float b, float c) { return std::fma(a, b, c); }
constexpr float infinity() { return std::numeric_limits<float>::infinity(); }
inline float rounded_product(float a, float b) { return std::fma(a, b, -0.0f); }
inline int nearest_integer(float x) { return static_cast<int>(std::nearbyint(x)); }
inline int add_byte_products(std::uint32_t a, std::uint32_t b, int sum) {
  for (int bit = 0; bit < 32; bit += 8)
    sum += static_cast<std::int8_t>(a >> bit & 255) * static_cast<std::int8_t>(b >> bit & 255);
  return sum;
}
inline std::uint32_t shift_right(std::uint32_t low, std::uint32_t high, int bits) {
  return static_cast<std::uint32_t>((static_cast<std::uint64_t>(high) << 32 | low) >> bits);
}
inline std::uint32_t select_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t all = static_cast<std::uint64_t>(high) << 32 | low;
  std::uint32_t selected = 0;
  for (int i = 0; i < 4; ++i)
    selected |= static_cast<std::uint32_t>(all >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return selected;
}

#endif

}  // namespace kformer::Impl::cuda
