// SPDX-License-Identifier: MIT
// Functions that launch several parts refuse operands without memory under their own name, before any part runs.
#include "kformer/ops/linear.hpp"
#include "kformer/ops/swiglu_mlp.hpp"
#include "kformer/ops/ternary.hpp"
#include "ops/public_function.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

using Unmanaged = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
using Nothing = Kokkos::View<float**, Kokkos::LayoutRight, Memory, Unmanaged>;

/// A View without an address.
Nothing nothing(std::size_t rows, std::size_t columns) { return Nothing(nullptr, rows, columns); }

template <class F>
void check_refused(F call, const std::string& function, const std::string& role, const std::string& operands) {
  check_error<DimensionMismatch>(
      call, "kformer::" + function + ": " + role +
                " has no memory (null pointer, or a ledger that only counts); allocate it: " + operands);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(operands_without_memory)

BOOST_AUTO_TEST_CASE(linear) {
  const Matrix<float> x("x", 5, 12), weight("weight", 7, 12), dy("dy", 5, 7), dx("dx", 5, 12);
  check_refused([&] { linear_forward(x, nothing(7, 12), dy); }, "linear_forward", "weight",
                "x[5,12] weight[7,12] y[5,7]");
  check_refused([&] { linear_backward(x, weight, dy, dx, nothing(7, 12)); }, "linear_backward", "dweight",
                "x[5,12] weight[7,12] dy[5,7] dx[5,12] dweight[7,12]");
  // Extents of zero need none.
  linear_forward(nothing(0, 12), weight, nothing(0, 7));
}

BOOST_AUTO_TEST_CASE(losses) {
  const auto all = linear_cross_entropy_operands<float>();
  check_refused([&] { linear_cross_entropy(nothing(5, 12), all.weight, all.targets, all.loss); },
                "linear_cross_entropy", "x", "x[5,12] weight[7,12] targets[5] loss[5]");
  const LinearCrossEntropyOperands operands{.x = all.x,
                                            .weight = all.weight,
                                            .targets = all.targets,
                                            .dloss = all.dloss,
                                            .loss = all.loss,
                                            .dx = all.dx,
                                            .dweight = nothing(7, 12)};
  check_refused([&] { linear_cross_entropy(operands); }, "linear_cross_entropy", "dweight",
                "x[5,12] weight[7,12] targets[5] loss[5] dloss[5] dx[5,12] dweight[7,12]");
}

BOOST_AUTO_TEST_CASE(mlp) {
  const Matrix<float> x("x", 5, 12), gate_up("gate_up", 14, 12), down("down", 12, 7), saved("saved", 5, 14),
      product("product", 5, 7), y("y", 5, 12), dy("dy", 5, 12), d_down("d_down", 12, 7);
  const SwigluMlpForwardOperands forward{.x = x,
                                         .weight_gate_up = gate_up,
                                         .weight_down = down,
                                         .gate_up = saved,
                                         .product = nothing(5, 7),
                                         .y = y};
  check_refused([&] { swiglu_mlp_forward(forward); }, "swiglu_mlp_forward", "product",
                "x[5,12] weight_gate_up[14,12] weight_down[12,7] gate_up[5,14] product[5,7] y[5,12]");
  const SwigluMlpBackwardOperands backward{.x = x,
                                           .weight_gate_up = gate_up,
                                           .weight_down = down,
                                           .gate_up = saved,
                                           .product = product,
                                           .dy = dy,
                                           .dproduct = product,
                                           .dgate_up = saved,
                                           .dx = y,
                                           .dweight_gate_up = nothing(14, 12),
                                           .dweight_down = d_down};
  check_refused([&] { swiglu_mlp_backward(backward); }, "swiglu_mlp_backward", "dweight_gate_up",
                "x[5,12] weight_gate_up[14,12] weight_down[12,7] gate_up[5,14] product[5,7] dy[5,12] "
                "dproduct[5,7] dgate_up[5,14] dx[5,12] dweight_gate_up[14,12] dweight_down[12,7]");
}

BOOST_AUTO_TEST_CASE(ternary) {
  const Matrix<float> x("x", 5, 64), weight("weight", 7, 64), dy("dy", 5, 7), dx("dx", 5, 64);
  check_refused([&] { ternary_linear_forward(x, weight, nothing(5, 7)); }, "ternary_linear_forward", "y",
                "x[5,64] weight[7,64] y[5,7]");
  check_refused([&] { ternary_linear_backward(x, weight, dy, dx, nothing(7, 64)); }, "ternary_linear_backward",
                "dweight", "x[5,64] weight[7,64] dy[5,7] dx[5,64] dweight[7,64]");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
