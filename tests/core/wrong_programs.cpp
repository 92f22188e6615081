// SPDX-License-Identifier: MIT
// Programs that must not compile, one per value of KFORMER_WRONG_PROGRAM; tests/CMakeLists.txt has the sentence
// that each of them must get. Program 0 is right.
#include "kformer/ops/rms_norm.hpp"

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;
template <class T>
using Vector = Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Exec = Kokkos::DefaultHostExecutionSpace;

template <class X, class Y = X>
void norm(const X& x, const Y& y) {
  kformer::rms_norm_forward(Exec(), x, Vector<float>(), y, Vector<float>());
}

void use(const kformer::Workspace&) {}

void program() {
#if KFORMER_WRONG_PROGRAM == 0
  norm(Matrix<const float>(), Matrix<float>());
  norm(kformer::as_row_major(Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>()), Matrix<float>());
  use(Vector<std::byte>());
  use(Vector<char>());
#elif KFORMER_WRONG_PROGRAM == 1
  norm(Matrix<float>(), Matrix<const float>());
#elif KFORMER_WRONG_PROGRAM == 2
  norm(Matrix<float>(), Vector<float>());
#elif KFORMER_WRONG_PROGRAM == 3
  norm(Matrix<int>(), Matrix<int>());
#elif KFORMER_WRONG_PROGRAM == 4
  norm(Matrix<float>(), Matrix<double>());
#elif KFORMER_WRONG_PROGRAM == 5
  norm(Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace>(), Matrix<float>());
#elif KFORMER_WRONG_PROGRAM == 6
  use(Vector<double>());
#elif KFORMER_WRONG_PROGRAM == 7
  use(Vector<const std::byte>());
#endif
}
