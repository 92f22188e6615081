// SPDX-License-Identifier: MIT
// The calls on the pages of quantized and ternary. Checks that products of packed weights are those of the numbers
// they stand for, and that 8 bits keep a product to a percent.
#include <Kokkos_Core.hpp>
#include <Kokkos_Random.hpp>
#include <cmath>
#include <cstdio>

#include "kformer/kformer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;
using Bytes = Kokkos::View<std::byte*>;

const int rows = 8, in = 256, out = 64;

// The error of a, relative to b, as a root of mean squares.
double error(const Matrix& a, const Matrix& b) {
  const float *x = a.data(), *y = b.data();
  double difference = 0, size = 0;
  Kokkos::parallel_reduce(
      "error", a.size(),
      KOKKOS_LAMBDA(int i, double& d, double& s) {
        d += (x[i] - y[i]) * (x[i] - y[i]);
        s += y[i] * y[i];
      },
      difference, size);
  return std::sqrt(difference / size);
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  const Kokkos::Random_XorShift64_Pool<> random(1);
  const Matrix x("x", rows, in), weight("weight", out, in), y("y", rows, out), expected("expected", rows, out);
  Kokkos::fill_random(x, random, -1.0f, 1.0f);
  Kokkos::fill_random(weight, random, -1.0f, 1.0f);
  kformer::linear_forward(exec, x, weight, expected);

  // [quantized]
  const auto format = kformer::QuantizedFormat::q8_0;
  const Bytes bytes("bytes", kformer::quantized_bytes(format, out, in));
  const kformer::QuantizedOutput packed{format, bytes.data(), out, in};
  kformer::quantize(exec, weight, packed);
  kformer::quantized_linear_forward(exec, x, packed, y);
  // [quantized]
  const double eight_bits = error(y, expected);

  const Matrix dy("dy", rows, out), dx("dx", rows, in), expected_dx("expected_dx", rows, in);
  Kokkos::fill_random(dy, random, -1.0f, 1.0f);
  kformer::linear_backward_input(exec, weight, dy, expected_dx);
  // [nf4]
  const auto nf4 = kformer::QuantizedFormat::nf4;
  const Bytes nf4_bytes("nf4", kformer::quantized_bytes(nf4, out, in));
  const kformer::QuantizedOutput frozen{nf4, nf4_bytes.data(), out, in};
  kformer::quantize(exec, weight, frozen);
  kformer::quantized_linear_backward_input(exec, frozen, dy, dx);
  // [nf4]
  const double four_bits = error(dx, expected_dx);

  // [ternary]
  const Bytes ternary_bytes("ternary", kformer::quantized_bytes(kformer::QuantizedFormat::tq2_0, out, in));
  const kformer::QuantizedOutput ternary{kformer::QuantizedFormat::tq2_0, ternary_bytes.data(), out, in};
  const Bytes workspace("workspace", kformer::ternary_quantize_workspace_bytes(exec, ternary));
  kformer::ternary_quantize(exec, weight, ternary, workspace);
  kformer::quantized_linear_forward(exec, x, ternary, y);
  // [ternary]
  const Matrix numbers("numbers", out, in);
  kformer::dequantize(exec, ternary, numbers);
  kformer::linear_forward(exec, x, numbers, expected);
  const double packed_product = error(y, expected);

  const Matrix dweight("dweight", out, in);
  // [training]
  const Bytes scratch("scratch", kformer::ternary_linear_backward_workspace_bytes<float>(exec, rows, in, out));
  kformer::ternary_linear_forward(exec, x, weight, y, {}, scratch);
  kformer::ternary_linear_backward(exec, x, weight, dy, dx, dweight, {}, scratch);
  // [training]
  const double activations = error(y, expected);  // x is rounded to 8 bits as well

  std::printf(
      "error of 8 bits %.4f; of a gradient through NF4 %.3f; of the packed product %.1e; of 8-bit inputs "
      "%.4f\n",
      eight_bits, four_bits, packed_product, activations);
  return eight_bits < 0.01 && four_bits < 0.2 && packed_product < 1e-5 && activations < 0.02 ? 0 : 1;
}
