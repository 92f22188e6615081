// SPDX-License-Identifier: MIT
// The CUDA kernel of products of few rows on emulated blocks, against the reference by the rule.
#include "cuda/emulated_kernels.hpp"
#include "kformer/core/tensor_parts.hpp"
#include "ops/linear/cuda/dot_entries.hpp"
#include "ops/linear_cases.hpp"

namespace kformer::Testing {
using namespace linear_cases;

BOOST_AUTO_TEST_SUITE(linear_emulated)

constexpr auto kernel = Impl::cuda::LinearDotEntry<Exec>::entry();
constexpr EmulatedKernels emulated(kernel);

// Every number of rows, parts of the rows of W that share a block, chunks of some threads, of all and of several
// rounds, and nothing at all.
const std::vector<Shape> shapes{{1, 8, 1},    {1, 1024, 4}, {2, 40, 7},   {3, 1032, 9},
                                {4, 2056, 5}, {1, 4104, 6}, {4, 3080, 3}, {2, 5120, 2},
                                {0, 16, 3},   {3, 0, 5},    {2, 24, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_matches_the_oracle, T, UpToFloat) {
  unsigned seed = 20261129;
  for (const Shape& s : shapes)
    for (const Added added : every_added)
      for (const double scale : {1.0, -0.7})
        test_forward(Tensors<T>(s, Rows::aligned, Rows::strided, seed++), added, scale, emulated);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_has_the_same_bits_beside_others, T, UpToFloat) {
  std::mt19937 generator(9);
  constexpr std::int64_t rows = 4, in = 1544, out = 6;
  const auto x = TestTensor<Exec, T>({rows, in}, Rows::aligned).random(generator),
             weight = TestTensor<Exec, T>({out, in}, Rows::aligned).random(generator);
  const auto result = [&](std::int64_t first, std::int64_t count) {
    TestTensor<Exec, T> y({count, out});
    HostTensor<double> values;
    emulated(Impl::LinearForward{Impl::rows_of(x.ref(), first, count), weight.ref(), {}, {}, y.ref(), {0.7}},
             {&y}, [&](const std::string&) { values = y.template read<double>(); });
    return values;
  };
  const auto all = result(0, rows);
  for (std::int64_t first = 0; first < rows; ++first)
    for (std::int64_t count = 1; first + count <= rows; ++count) {
      const auto some = result(first, count);
      for (std::int64_t r = 0; r < count; ++r)
        for (std::int64_t o = 0; o < out; ++o) BOOST_TEST(some(r, o) == all(first + r, o));
    }
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  const auto refusal = []<class T>(std::type_identity<T>, const Shape& s, Rows rows,
                                   const LinearOptions& options = {}) {
    const Tensors<T> t(s, rows);
    return kernel.reject({t.x.ref(), t.weight.ref(), {}, {}, t.y.ref(), options});
  };
  const std::type_identity<bf16> half;
  BOOST_TEST(refusal(half, {4, 64, 3}, Rows::aligned) == "");
  BOOST_TEST(refusal(half, {5, 64, 3}, Rows::aligned) == "x has 5 rows, but it takes at most 4");
  BOOST_TEST(refusal(half, {4, 64, 3, 2}, Rows::aligned) == "it multiplies matrices, not batches of them");
  BOOST_TEST(refusal(half, {4, 36, 3}, Rows::aligned) == "a row has 72 bytes, which is not a multiple of 16");
  BOOST_TEST(refusal(half, {4, 64, 3}, Rows::strided) ==
             "x has a stride of 69 elements, which is not a multiple of 16 bytes");
  BOOST_TEST(refusal(half, {4, 64, 3}, Rows::aligned, {.batch_invariant = true}) == Impl::not_batch_invariant);
  BOOST_TEST(refusal(std::type_identity<double>{}, {4, 64, 3}, Rows::aligned) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
