// SPDX-License-Identifier: MIT
// The CUDA kernel of the embedding's gradient on emulated blocks, against the reference by the rule.
#include "cuda/emulated_kernels.hpp"
#include "ops/embedding/cuda/entries.hpp"
#include "ops/embedding_cases.hpp"

namespace kformer::Testing {
using namespace embedding_cases;

BOOST_AUTO_TEST_SUITE(embedding_emulated)

constexpr auto kernel = Impl::cuda::EmbeddingBackwardEntry<Exec>::entry();
constexpr EmulatedKernels emulated(kernel);

// Several passes over the ids, several ids of a class, columns of several blocks of threads, and nothing at all.
const std::vector<Shape> shapes{{1, 1, 8},    {7, 3, 16}, {1100, 2000, 8}, {700, 2, 24}, {600, 5, 40},
                                {9, 4, 1032}, {0, 3, 8},  {3, 0, 8},       {3, 5, 0}};

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_matches_the_oracle, T, UpToFloat) {
  for (const Shape shape : shapes) test_backward(Tensors<T>(shape, 20261129, Rows::aligned), emulated);
}

// In float, 1 is lost in 2^26 and 3 is kept by 0: only the order of the rows gives exactly 3. Rows of an id follow
// each other, lie in other groups of rows in flight, or in another pass.
BOOST_AUTO_TEST_CASE(rows_are_added_in_their_order) {
  constexpr float values[] = {1, 0x1p26f, -0x1p26f, 3};
  constexpr std::int32_t others[] = {1026, 514};  // in the class of 2
  for (const std::int64_t distance : {1, 2, 3, 5, 31, 130, 300}) {
    TestTensor<Exec, std::int32_t> ids({3 * distance + 1});
    TestTensor<Exec, float> dy({3 * distance + 1, 4}, Rows::aligned), dweight({1030, 4}, Rows::aligned);
    ids.fill([&](std::size_t i) { return i % distance == 0 ? 2 : others[i % 2]; });
    dy.fill([&](std::size_t i) { return i / 4 % distance == 0 ? values[i / 4 / distance] : 0; });
    dweight.fill([](std::size_t) { return 0; });
    emulated(Impl::EmbeddingBackward{ids.ref(), dy.ref(), dweight.ref()}, {&dweight}, [&](const std::string&) {
      const auto got = dweight.read<double>();
      for (int h = 0; h < 4; ++h) BOOST_TEST(got(2, h) == 3, "distance " << distance);
    });
  }
}

BOOST_AUTO_TEST_CASE(ids_outside_the_vocabulary_contribute_nothing) {
  Tensors<float> t({4, 3, 8}, 20261130, Rows::aligned);
  const std::int32_t ids[] = {-1, 3, std::numeric_limits<std::int32_t>::min(), 512};
  t.ids.fill([&](std::size_t i) { return ids[i]; });
  const auto before = t.dweight.read<double>().values();
  emulated(Impl::EmbeddingBackward{t.ids.ref(), t.dy.ref(), t.dweight.ref()}, {&t.dweight},
           [&](const std::string&) { BOOST_TEST(t.dweight.read<double>().values() == before); });
}

BOOST_AUTO_TEST_CASE(refusals_say_why) {
  const auto refusal = []<class T>(std::type_identity<T>, std::int64_t hidden, Rows rows) {
    const Tensors<T> t({3, 5, hidden}, 1, rows);
    return kernel.reject({t.ids.ref(), t.dy.ref(), t.dweight.ref()});
  };
  const std::type_identity<bf16> half;
  BOOST_TEST(refusal(half, 8, Rows::aligned) == "");
  BOOST_TEST(refusal(half, 12, Rows::aligned) == "a row has 24 bytes, which is not a multiple of 16");
  BOOST_TEST(refusal(half, 8, Rows::strided) ==
             "dy has a stride of 13 elements, which is not a multiple of 16 bytes");
  BOOST_TEST(refusal(std::type_identity<double>{}, 8, Rows::aligned) ==
             "operands are stored as f64, but it supports only f32, bf16 and f16");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
