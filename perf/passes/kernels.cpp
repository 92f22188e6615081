// SPDX-License-Identifier: MIT

// Compiled once per instruction set, with KFORMER_ISA defined as its name; see cmake/KformerBlocks.cmake.
#include "ops/common/simd/row_access.hpp"
#include "passes/arguments.hpp"

namespace kformer::Impl::simd::KFORMER_ISA {

using host::Block;
using perf::ApplyRotationArguments;
using perf::PairArguments;
using perf::RotateHalfArguments;

template <class T, class F>
KFORMER_SIMD_INLINE void combine(const PairArguments& p, const Block& block, F f) {
  using C = Arithmetic<T>;
  const std::int64_t a_ahead = elements_ahead<T>(p.a), b_ahead = elements_ahead<T>(p.b);
  for (std::int64_t row = block.first_row; row < block.end_row; ++row) {
    const T *a = row_of<T>(p.a, row) + block.first_column, *b = row_of<T>(p.b, row) + block.first_column;
    const RowWriter<T> y(p.y, row, block.first_column);
    for_each_vector<C>(block.columns, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
      __builtin_prefetch(a + i + a_ahead, 0, 2);
      __builtin_prefetch(b + i + b_ahead, 0, 2);
      y.store(i, f(part.load(a + i), part.load(b + i)), part);
    });
  }
  end_streams();
}

template <class T>
void sum(const PairArguments& p, const Block& block) {
  using V = Vector<Arithmetic<T>>;
  combine<T>(p, block, [](V a, V b) __attribute__((always_inline)) { return a + b; });
}

template <class T>
void product(const PairArguments& p, const Block& block) {
  using V = Vector<Arithmetic<T>>;
  combine<T>(p, block, [](V a, V b) __attribute__((always_inline)) { return a * b; });
}

template <class T>
void rotate_half(const RotateHalfArguments& p, std::int64_t first_row, std::int64_t end) {
  using C = Arithmetic<T>;
  const std::int64_t ahead = elements_ahead<T>(p.x);
  for (std::int64_t row = first_row; row < end; ++row) {
    const T* x = row_of<T>(p.x, row);
    const RowWriter<T, 2> y(p.y, row);
    for (std::int64_t first = 0; first < p.columns; first += 2 * p.half) {
      const std::int64_t second = first + p.half;
      for_each_vector<C>(p.half, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
        __builtin_prefetch(x + first + i + ahead, 0, 2);
        __builtin_prefetch(x + second + i + ahead, 0, 2);
        y.store(first + i, -part.load(x + second + i), part);
        y.store(second + i, part.load(x + first + i), part);
      });
    }
  }
  end_streams();
}

template <class T>
void apply_rotation(const ApplyRotationArguments& p, std::int64_t first_row, std::int64_t end) {
  using C = Arithmetic<T>;
  const std::int64_t x_ahead = elements_ahead<T>(p.x), rotated_ahead = elements_ahead<T>(p.rotated);
  for (std::int64_t row = first_row; row < end; ++row) {
    const std::int64_t position = row % p.positions;
    const C *cos = row_of<C>(p.cos, position), *sin = row_of<C>(p.sin, position);
    const T *x = row_of<T>(p.x, row), *rotated = row_of<T>(p.rotated, row);
    const RowWriter<T> y(p.y, row);
    for (std::int64_t first = 0; first < p.columns; first += p.half)
      for_each_vector<C>(p.half, [&](std::int64_t i, auto part) __attribute__((always_inline)) {
        const std::int64_t at = first + i;
        __builtin_prefetch(x + at + x_ahead, 0, 2);
        __builtin_prefetch(rotated + at + rotated_ahead, 0, 2);
        y.store(at, part.load(x + at) * part.load(cos + i) + part.load(rotated + at) * part.load(sin + i),
                part);
      });
  }
  end_streams();
}

}  // namespace kformer::Impl::simd::KFORMER_ISA

namespace kformer::perf {

template <Impl::host::Isa isa>
const PassKernels& pass_kernels(DType storage) {
  using namespace Impl::simd::KFORMER_ISA;
  static constexpr auto all =
      by_storage([]<class T>() { return PassKernels{sum<T>, product<T>, rotate_half<T>, apply_rotation<T>}; });
  return all.of[static_cast<int>(storage)];
}

template const PassKernels& pass_kernels<Impl::host::Isa::KFORMER_ISA>(DType);

}  // namespace kformer::perf
