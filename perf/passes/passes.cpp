// SPDX-License-Identifier: MIT
#include "passes/passes.hpp"

#include <initializer_list>

#include "ops/common/host_rows.hpp"
#include "passes/arguments.hpp"

namespace kformer::perf {

namespace {

using Impl::host::Isa;

template <Isa isa>
bool takes(DType storage) {
  return Impl::host::refusal<isa>(storage).empty();
}

// In the order of the blocks.
const PassKernels& kernels_of(DType storage) {
  using Impl::host::built;
  if (takes<Isa::avx512_bf16>(storage)) return pass_kernels<built<Isa::avx512_bf16>>(storage);
  if (takes<Isa::avx512>(storage)) return pass_kernels<built<Isa::avx512>>(storage);
  if (takes<Isa::avx2>(storage)) return pass_kernels<built<Isa::avx2>>(storage);
  return pass_kernels<Isa::generic>(storage);
}

bool exceed_caches(std::initializer_list<TensorRef> arrays) {
  std::int64_t bytes = 0;
  for (const TensorRef& array : arrays) bytes += Impl::host::bytes_of(array);
  return Impl::host::exceeds_caches(bytes);
}

// Only these are aligned for non-temporal stores.
bool are_whole_vectors(std::int64_t half) { return half % 16 == 0; }

struct Sum {
  template <class C>
  KOKKOS_FUNCTION C operator()(C a, C b) const {
    return a + b;
  }
};

struct Product {
  template <class C>
  KOKKOS_FUNCTION C operator()(C a, C b) const {
    return a * b;
  }
};

// The kernels of devices: `f(row, column)` for all elements of `y`.
template <class Exec, class F>
void for_each_element(const Exec& exec, const char* label, const TensorRef& y, const F& f) {
  const std::int64_t columns = y.extent[1];
  Kokkos::parallel_for(
      label, Kokkos::RangePolicy<Exec>(exec, 0, y.size()),
      KOKKOS_LAMBDA(std::int64_t i) { f(i / columns, i % columns); });
}

template <class T, class Exec, class F>
void combine_elements(const Exec& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result,
                      const F& f) {
  const auto x = a.as<T, 2>(), y = b.as<T, 2>(), to = result.as<T, 2>();
  using C = compute_t<T>;
  for_each_element(
      exec, "kformer::perf::combine", result, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        to(row, column) = T(f(C(x(row, column)), C(y(row, column))));
      });
}

template <class T, class Exec>
void rotate_half_elements(const Exec& exec, const TensorRef& x, std::int64_t half, const TensorRef& result) {
  const auto from = x.as<T, 2>(), to = result.as<T, 2>();
  using C = compute_t<T>;
  for_each_element(
      exec, "kformer::perf::rotate_half", result, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        const bool upper = column / half % 2 == 1;
        to(row, column) = upper ? from(row, column - half) : T(-C(from(row, column + half)));
      });
}

template <class T, class Exec>
void apply_rotation_elements(const Exec& exec, const TensorRef& x, const TensorRef& rotated,
                             const TensorRef& cos, const TensorRef& sin, const TensorRef& result) {
  using C = compute_t<T>;
  const auto a = x.as<T, 2>(), b = rotated.as<T, 2>(), to = result.as<T, 2>();
  const auto c = cos.as<C, 2>(), s = sin.as<C, 2>();
  for_each_element(
      exec, "kformer::perf::apply_rotation", result, KOKKOS_LAMBDA(std::int64_t row, std::int64_t column) {
        const std::int64_t position = row % c.extent[0], pair = column % c.extent[1];
        to(row, column) = T(C(a(row, column)) * c(position, pair) + C(b(row, column)) * s(position, pair));
      });
}

// Templates of the space: what is for the other kind of space is not compiled.
template <class F, class Exec>
void combine(const Exec& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result) {
  if constexpr (Impl::is_host_space<Exec>) {
    const PassKernels& kernels = kernels_of(result.dtype);
    const PairArguments p{Impl::host::input_rows(a), Impl::host::input_rows(b),
                          Impl::host::output_rows(result, exceed_caches({a, b, result}), {a, b})};
    Impl::host::for_each_block("kformer::perf::combine", exec, result.extent[0], result.extent[1],
                               [=, run = std::is_same_v<F, Sum> ? kernels.sum : kernels.product](
                                   const Impl::host::Block& block) { run(p, block); });
  } else {
    dispatch_dtype(result.dtype,
                   [&]<class T>(std::type_identity<T>) { combine_elements<T>(exec, a, b, result, F()); });
  }
}

template <class Exec>
void rotate_half_on(const Exec& exec, const TensorRef& x, std::int64_t half, const TensorRef& result) {
  if constexpr (Impl::is_host_space<Exec>) {
    // Of x as much is read as is written.
    const bool streams = are_whole_vectors(half) && exceed_caches({result, result});
    const RotateHalfArguments p{Impl::host::input_rows(x), Impl::host::output_rows(result, streams, {x}),
                                result.extent[1], half};
    Impl::host::for_each_piece("kformer::perf::rotate_half", exec, result.extent[0],
                               Impl::host::piece_of_rows(result.extent[1]),
                               [=, run = kernels_of(result.dtype).rotate_half](
                                   std::int64_t first, std::int64_t end) { run(p, first, end); });
  } else {
    dispatch_dtype(result.dtype,
                   [&]<class T>(std::type_identity<T>) { rotate_half_elements<T>(exec, x, half, result); });
  }
}

template <class Exec>
void apply_rotation_on(const Exec& exec, const TensorRef& x, const TensorRef& rotated, const TensorRef& cos,
                       const TensorRef& sin, const TensorRef& result) {
  if constexpr (Impl::is_host_space<Exec>) {
    using Impl::host::input_rows;
    const bool streams = are_whole_vectors(cos.extent[1]) && exceed_caches({result, rotated, result});
    const ApplyRotationArguments p{input_rows(x),
                                   input_rows(rotated),
                                   input_rows(cos),
                                   input_rows(sin),
                                   Impl::host::output_rows(result, streams, {x, rotated}),
                                   result.extent[1],
                                   cos.extent[1],
                                   cos.extent[0]};
    Impl::host::for_each_piece("kformer::perf::apply_rotation", exec, result.extent[0],
                               Impl::host::piece_of_rows(result.extent[1]),
                               [=, run = kernels_of(result.dtype).apply_rotation](
                                   std::int64_t first, std::int64_t end) { run(p, first, end); });
  } else {
    dispatch_dtype(result.dtype, [&]<class T>(std::type_identity<T>) {
      apply_rotation_elements<T>(exec, x, rotated, cos, sin, result);
    });
  }
}

}  // namespace

void add(const Space& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result) {
  combine<Sum>(exec, a, b, result);
}

void multiply(const Space& exec, const TensorRef& a, const TensorRef& b, const TensorRef& result) {
  combine<Product>(exec, a, b, result);
}

void rotate_half(const Space& exec, const TensorRef& x, std::int64_t half, const TensorRef& result) {
  rotate_half_on(exec, x, half, result);
}

void apply_rotation(const Space& exec, const TensorRef& x, const TensorRef& rotated, const TensorRef& cos,
                    const TensorRef& sin, const TensorRef& result) {
  apply_rotation_on(exec, x, rotated, cos, sin, result);
}

}  // namespace kformer::perf
