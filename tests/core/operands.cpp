// SPDX-License-Identifier: MIT
#include "kformer/core/operands.hpp"

#include <array>
#include <sstream>

#include "core/overlap.hpp"
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

BOOST_AUTO_TEST_CASE(a_tensor_ref_has_address_type_extents_and_strides) {
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
  alignas(Workspace::alignment) std::byte memory[16];
  Workspace workspace;
  workspace.data = memory;
  workspace.bytes = 8;
  BOOST_CHECK_NO_THROW(all.require_workspace(workspace, 8));
  check_error<DimensionMismatch>(
      [&] { all.require_workspace(workspace, 9); },
      "kformer::f_backward: the workspace has 8 bytes, 9 are needed; ask kformer::f_backward_workspace_bytes: "
      "x[3,5]");
  workspace.data = memory + 4;
  std::ostringstream address;
  address << workspace.data;
  check_error<DimensionMismatch>([&] { all.require_workspace(workspace, 8); },
                                 "kformer::f_backward: the workspace begins at " + address.str() +
                                     ", expected a multiple of 64 bytes; pass the beginning of a Kokkos "
                                     "allocation: x[3,5]");
}

BOOST_AUTO_TEST_CASE(memory_text) {
  using Unmanaged =
      Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  const Matrix<float> x("x", 3, 5);
  const Unmanaged nothing(nullptr, 3, 5), empty(nullptr, 0, 5);
  BOOST_CHECK_NO_THROW(
      Operands("f", {operand("x", x), operand("empty", empty), {"absent", {}}}).require_addresses());
  check_error<DimensionMismatch>(
      [&] { Operands("f", {operand("x", x), operand("y", nothing)}).require_addresses(); },
      "kformer::f: y has no memory (null pointer, or a ledger that only counts); allocate it: x[3,5] y[3,5]");
  BOOST_CHECK_NO_THROW(Impl::require_allocated("f", "the cache", nullptr, 0));
  BOOST_CHECK_NO_THROW(Impl::require_allocated("f", "the cache", x.data(), 60));
  check_error<DimensionMismatch>(
      [&] { Impl::require_allocated("f", "the cache", nullptr, 1); },
      "kformer::f: the cache has no memory (null pointer, or a ledger that only counts); allocate it");
}

BOOST_AUTO_TEST_CASE(floating_text) {
  const Kokkos::View<std::int32_t*, Kokkos::HostSpace> ids("ids", 3);
  const Matrix<f16> x("x", 3, 5);
  const Operands all("f", {operand("x", x), operand("y", ids), {"mask", {}}});
  BOOST_CHECK_NO_THROW(all.require_floating("x").require_floating("mask"));
  check_error<DimensionMismatch>([&] { all.require_floating("y"); },
                                 "kformer::f: y is stored as i32, expected f32, bf16, f16 or f64: x[3,5] y[3]");
}

BOOST_AUTO_TEST_CASE(an_output_shares_no_memory) {
  const Matrix<float> x("x", 4, 6), other("other", 4, 6);
  const Operands same("f", {operand("x", x), operand("y", x), operand("z", other)});
  BOOST_CHECK_NO_THROW(same.require_disjoint("z").require_disjoint("y", {"x"}).require_disjoint("absent"));
  check_error<DimensionMismatch>(
      [&] { same.require_disjoint("y"); },
      "kformer::f: y shares memory with x; pass a separate View: x[4,6] y[4,6] z[4,6]");
  const auto upper = Kokkos::subview(x, Kokkos::pair(0, 3), Kokkos::ALL),
             lower = Kokkos::subview(x, Kokkos::pair(1, 4), Kokkos::ALL);
  check_error<DimensionMismatch>(
      [&] { Operands("f", {operand("x", upper), operand("y", lower)}).require_disjoint("y", {"x"}); },
      "kformer::f: y shares memory with x, but is not the same View; pass the same View or a separate one: "
      "x[3,6] y[3,6]");
}

BOOST_AUTO_TEST_CASE(an_output_has_each_element_once) {
  const Matrix<float> x("x", 4, 6), other("other", 9, 6);
  const auto output = [&](std::initializer_list<std::int64_t> extents,
                          std::initializer_list<std::int64_t> strides) {
    TensorRef ref = tensor_ref(x);
    ref.rank = static_cast<int>(extents.size());
    std::copy(extents.begin(), extents.end(), ref.extent.begin());
    std::copy(strides.begin(), strides.end(), ref.stride.begin());
    return Operands("f", {operand("x", other), {"y", ref}});
  };
  const auto refused = [](const Operands& all, const std::string& extents) {
    check_error<DimensionMismatch>(
        [&] { all.require_disjoint("y"); },
        "kformer::f: elements of y share memory; pass a View that has each of them once: x[9,6] y[" + extents +
            "]");
  };
  refused(output({3, 4, 6}, {0, 6, 1}), "3,4,6");  // three matrices in one place
  refused(output({4, 6}, {5, 1}), "4,6");          // rows that reach into the next ones
  refused(output({2, 3, 4}, {2, 8, 1}), "2,3,4");
  for (const Operands& all : {output({4, 6}, {6, 1}), output({4, 6}, {1, 4}), output({2, 3, 4}, {4, 8, 1}),
                              output({1, 4, 6}, {0, 6, 1}), output({3, 0, 6}, {0, 6, 1}), output({5}, {1})})
    BOOST_CHECK_NO_THROW(all.require_disjoint("y"));
  const auto read = output({3, 4, 6}, {0, 6, 1});
  BOOST_CHECK_NO_THROW(read.require_disjoint("x"));  // what is only read may repeat its elements
}

BOOST_AUTO_TEST_CASE(slices_that_lie_between_each_other_share_no_memory) {
  using Kokkos::ALL, Kokkos::pair, Kokkos::subview;
  const Matrix<float> x("x", 4, 6);
  const auto overlap = [](const auto& a, const auto& b) {
    return Impl::overlap(tensor_ref(a), tensor_ref(b)) && Impl::overlap(tensor_ref(b), tensor_ref(a));
  };
  const auto apart = [](const auto& a, const auto& b) {
    return !Impl::overlap(tensor_ref(a), tensor_ref(b)) && !Impl::overlap(tensor_ref(b), tensor_ref(a));
  };
  BOOST_TEST(apart(subview(x, ALL, pair(0, 3)), subview(x, ALL, pair(3, 6))));
  BOOST_TEST(overlap(subview(x, ALL, pair(0, 3)), subview(x, ALL, pair(2, 5))));
  BOOST_TEST(apart(subview(x, pair(0, 2), ALL), subview(x, pair(2, 4), ALL)));
  BOOST_TEST(overlap(x, subview(x, pair(3, 4), pair(5, 6))));
  BOOST_TEST(apart(subview(x, pair(0, 1), ALL), subview(x, pair(1, 4), pair(1, 2))));
  // Queries, keys and values of one product, and steps of a padded batch.
  const Kokkos::View<float****, Kokkos::LayoutRight, Kokkos::HostSpace> batch("batch", 2, 5, 6, 4);
  const auto heads = [&](int from, int to) { return subview(batch, ALL, ALL, pair(from, to), ALL); };
  BOOST_TEST(apart(heads(0, 3), heads(3, 5)));
  BOOST_TEST(overlap(heads(0, 3), heads(2, 5)));
  const auto steps = [&](int from, int to) {
    return subview(batch, ALL, pair(from, to), pair(0, 2), pair(0, 3));
  };
  BOOST_TEST(apart(steps(0, 2), steps(2, 5)));
  BOOST_TEST(overlap(steps(0, 3), steps(2, 5)));
  const Matrix<float> none("none", 0, 6);
  BOOST_TEST(apart(none, none));
}

BOOST_AUTO_TEST_CASE(a_left_array_is_read_as_a_row_major_one) {
  const Kokkos::View<float****, Kokkos::LayoutLeft, Kokkos::HostSpace> left("left", 2, 3, 4, 5);
  const auto rows = as_row_major(left);
  static_assert(Impl::is_column_major<decltype(left)> && !Impl::is_column_major<decltype(rows)>);
  const TensorRef ref = tensor_ref(rows);
  BOOST_TEST(ref.has_extents({5, 4, 3, 2}));
  BOOST_TEST((ref.stride == std::array<std::int64_t, 4>{24, 6, 2, 1}));
  BOOST_TEST(&rows(4, 3, 2, 1) == &left(1, 2, 3, 4));
  BOOST_CHECK_NO_THROW(Operands("f", {{"x", ref}}).require_unit_stride().require_dense("it must"));
  const Kokkos::View<const double*, Kokkos::LayoutLeft, Kokkos::HostSpace> line(
      Kokkos::View<double*, Kokkos::LayoutLeft, Kokkos::HostSpace>("line", 7));
  BOOST_TEST(as_row_major(line).data() == line.data());
  static_assert(!Impl::is_column_major<decltype(line)> && !Impl::is_column_major<decltype(as_row_major(line))>);
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
