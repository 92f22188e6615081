// SPDX-License-Identifier: MIT
#include "kformer/core/operands.hpp"

#include "kformer/core/workspace.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

template <class V>
Operand operand(const char* role, const V& view) {
  return {role, tensor_ref(view)};
}

template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Kokkos::HostSpace>;

}  // namespace

BOOST_AUTO_TEST_SUITE(operands)

BOOST_AUTO_TEST_CASE(views_are_erased_to_address_type_extents_and_strides) {
  const Matrix<bf16> matrix("matrix", 3, 8);
  const auto slice = Kokkos::subview(matrix, Kokkos::ALL, Kokkos::pair(2, 7));
  const TensorRef ref = tensor_ref(slice);
  BOOST_TEST(ref.data == slice.data());
  BOOST_TEST((ref.dtype == DType::bf16));
  BOOST_TEST(ref.rank == 2);
  BOOST_TEST(ref.extent[0] == 3);
  BOOST_TEST(ref.extent[1] == 5);
  BOOST_TEST(ref.stride[0] == 8);
  BOOST_TEST(ref.stride[1] == 1);
  BOOST_TEST(ref.size() == 15);
  BOOST_TEST(ref.has_extents({3, 5}));
  BOOST_TEST(!ref.has_extents({3, 5, 1}));
  BOOST_TEST(!ref.has_extents({3, 4}));
  BOOST_TEST(!ref.same_extents(tensor_ref(matrix)));
  const auto typed = ref.as<bf16, 2>();
  BOOST_TEST(&typed(2, 4) == &slice(2, 4));
  const Kokkos::View<const double, Kokkos::HostSpace> number =
      Kokkos::View<double, Kokkos::HostSpace>("number");
  BOOST_TEST(tensor_ref(number).rank == 0);
  BOOST_TEST(tensor_ref(number).size() == 1);
  BOOST_TEST(!TensorRef{}.present());
  BOOST_TEST(TensorRef{}.size() == 0);
}

BOOST_AUTO_TEST_CASE(describe_names_roles_and_extents_and_skips_the_absent) {
  const Matrix<float> x("x", 3, 5);
  const Kokkos::View<float, Kokkos::HostSpace> loss("loss");
  const Operands all("f", {operand("x", x), {"mask", {}}, operand("loss", loss)});
  BOOST_TEST(all.describe() == "x[3,5] loss[]");
}

BOOST_AUTO_TEST_CASE(extents_text) {
  const Matrix<float> x("x", 3, 5), y("y", 3, 4);
  const Operands all("f_forward", {operand("x", x), operand("y", y)});
  BOOST_CHECK_NO_THROW(all.require_extents(true, "anything"));
  check_error<DimensionMismatch>(
      [&] { all.require_extents(false, "y to have the extents of x"); },
      "kformer::f_forward: extents do not match: x[3,5] y[3,4]; expected y to have the extents of x");
}

BOOST_AUTO_TEST_CASE(stride_text) {
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> columns("columns", 3, 5);
  check_error<DimensionMismatch>([&] { Operands("f_forward", {operand("x", columns)}).require_unit_stride(); },
                                 "kformer::f_forward: x must have unit stride along its last extent, because "
                                 "kernels read rows contiguously; "
                                 "its stride there is 3; use Kokkos::LayoutRight or copy it: x[3,5]");
}

BOOST_AUTO_TEST_CASE(strides_that_are_accepted) {
  const Matrix<float> matrix("matrix", 3, 8);
  const auto slice = Kokkos::subview(matrix, Kokkos::ALL, Kokkos::pair(2, 7));
  const Kokkos::View<float**, Kokkos::LayoutLeft, Kokkos::HostSpace> one("one", 3, 1), none("none", 3, 0);
  const Kokkos::View<float, Kokkos::HostSpace> number("number");
  BOOST_CHECK_NO_THROW(Operands("f", {operand("slice", slice),
                                      operand("one", one),
                                      operand("none", none),
                                      operand("number", number),
                                      {"absent", {}}})
                           .require_unit_stride());
}

BOOST_AUTO_TEST_CASE(dtype_text) {
  const Matrix<float> x("x", 3, 5);
  const Matrix<f16> y("y", 3, 5);
  const Operands all("f_forward", {operand("x", x), operand("y", y), {"mask", {}}});
  BOOST_CHECK_NO_THROW(all.require_dtype("x", DType::f32).require_dtype("mask", DType::f64));
  check_error<DimensionMismatch>([&] { all.require_dtype("y", DType::f32); },
                                 "kformer::f_forward: y is stored as f16, expected f32: x[3,5] y[3,5]");
}

BOOST_AUTO_TEST_CASE(dense_text) {
  const Matrix<float> x("x", 3, 5), row("row", 1, 9);
  const auto dense_row = Kokkos::subview(row, Kokkos::ALL, Kokkos::pair(2, 7));
  BOOST_CHECK_NO_THROW(Operands("f", {operand("x", x), operand("row", dense_row)}).require_dense("it must"));
  const auto slice = Kokkos::subview(x, Kokkos::ALL, Kokkos::pair(0, 4));
  check_error<DimensionMismatch>(
      [&] { Operands("f", {operand("x", slice)}).require_dense("it is one array"); },
      "kformer::f: x must be dense and row-major, because it is one array; its stride along extent 0 is 5, "
      "expected 4; use Kokkos::LayoutRight or copy it: x[3,4]");
}

BOOST_AUTO_TEST_CASE(option_text) {
  const Operands all("f_forward", {});
  BOOST_CHECK_NO_THROW(all.require_option(true, "anything"));
  check_error<NotSupported>([&] { all.require_option(false, "eps must not be negative, got -1"); },
                            "kformer::f_forward: eps must not be negative, got -1");
}

BOOST_AUTO_TEST_CASE(workspace_text) {
  const Matrix<float> x("x", 3, 5);
  const Operands all("f_backward", {operand("x", x)});
  BOOST_CHECK_NO_THROW(all.require_workspace(8, 8));
  check_error<DimensionMismatch>(
      [&] { all.require_workspace(7, 8); },
      "kformer::f_backward: the workspace has 7 bytes, 8 are needed; ask kformer::f_backward_workspace_bytes: "
      "x[3,5]");
}

BOOST_AUTO_TEST_CASE(a_workspace_is_made_from_a_view_of_bytes) {
  BOOST_TEST(Workspace().bytes == 0u);
  const Kokkos::View<std::byte*, Kokkos::HostSpace> bytes("bytes", 100);
  const Workspace workspace = bytes;
  BOOST_TEST(workspace.data == bytes.data());
  BOOST_TEST(workspace.bytes == 100u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
