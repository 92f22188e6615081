// SPDX-License-Identifier: MIT
#include "kformer/parallel/gradient_tree.hpp"

#include <cmath>
#include <random>
#include <tuple>

#include "kformer/parallel/tree_order.hpp"
#include "parallel/ranks.hpp"
#include "support/errors.hpp"

namespace kformer::Testing {
namespace {

constexpr std::size_t lengths[] = {0, 1, 75};

// The arrays that a leaf has, one of each length.
template <class T>
std::vector<Vector<T>> leaf_arrays() {
  std::vector<Vector<T>> arrays;
  for (const std::size_t length : lengths) arrays.emplace_back("array", length);
  return arrays;
}

template <class T>
void fill(const std::vector<Vector<T>>& arrays, std::int64_t leaf) {
  std::mt19937 generator(static_cast<unsigned>(leaf + 5));
  std::normal_distribution<T> number(0, static_cast<T>(leaf % 3 ? 1 : 1e4));
  for (const Vector<T>& a : arrays) {
    std::vector<T> values(a.size());
    for (T& v : values) v = number(generator);
    Kokkos::deep_copy(a, on_device(values));
  }
}

// Leaves [begin, end), summed in the arrays.
template <class T>
std::vector<Vector<T>> sum_of(std::int64_t begin, std::int64_t end) {
  const auto ledger = Ledger::create();
  const auto arrays = leaf_arrays<T>();
  std::vector<TensorRef> refs;
  for (const Vector<T>& a : arrays) refs.push_back(tensor_ref(a));
  GradientTree<Exec> tree(refs, end - begin, *ledger);
  std::size_t padded = 0;
  for (const std::size_t length : lengths) padded += (length * sizeof(T) + 63) / 64 * 64;
  std::size_t partial_sums = 0;
  while ((std::int64_t(2) << partial_sums) <= end - begin) ++partial_sums;
  BOOST_TEST(ledger->peak(MemoryClass::gradients) == partial_sums * padded);
  for (std::int64_t i = begin; i < end; ++i) {
    fill(arrays, i);
    tree.add(Exec(), i - begin, end - begin);
  }
  Kokkos::fence("kformer::Testing::gradient_tree");
  return arrays;
}

template <class T>
T node(std::size_t array, std::size_t at, std::int64_t first, std::int64_t width, std::int64_t leaves) {
  if (width == 1) {
    const auto arrays = leaf_arrays<T>();
    fill(arrays, first);
    return on_host(arrays[array])[at];
  }
  const std::int64_t middle = first + width / 2;
  const T left = node<T>(array, at, first, width / 2, leaves);
  return middle < leaves ? left + node<T>(array, at, middle, width / 2, leaves) : left;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(gradient_tree)

using Types = std::tuple<float, double>;

BOOST_AUTO_TEST_CASE_TEMPLATE(leaves_are_summed_in_the_tree, T, Types) {
  for (const std::int64_t leaves : {1, 2, 3, 4, 5, 7, 8, 13}) {
    const auto sum = sum_of<T>(0, leaves);
    std::int64_t width = 1;
    while (width < leaves) width *= 2;
    for (const std::size_t at : {0, 40, 74})
      BOOST_TEST(on_host(sum[2])[at] == node<T>(2, at, 0, width, leaves), leaves << " leaves");
  }
}

// Some arrays are two leaves behind the last one.
BOOST_AUTO_TEST_CASE_TEMPLATE(arrays_are_summed_for_themselves, T, Types) {
  for (const std::int64_t leaves : {1, 2, 3, 6, 8}) {
    const auto expected = sum_of<T>(0, leaves);
    const auto arrays = leaf_arrays<T>(), leaf = leaf_arrays<T>();
    std::vector<TensorRef> refs;
    for (const Vector<T>& a : arrays) refs.push_back(tensor_ref(a));
    const auto ledger = Ledger::create();
    GradientTree<Exec> tree(refs, leaves, *ledger);
    const auto add = [&](std::int64_t i, SomeArrays some) {
      if (i < 0 || i >= leaves) return;
      fill(leaf, i);
      for (std::size_t a = some.begin; a < some.end; ++a) Kokkos::deep_copy(arrays[a], leaf[a]);
      tree.add(Exec(), i, leaves, some);
    };
    for (std::int64_t i = 0; i < leaves + 2; ++i) {
      add(i, {2, 3});
      add(i - 2, {0, 2});
    }
    for (std::size_t a = 0; a < arrays.size(); ++a)
      BOOST_TEST(same_bits(on_host(arrays[a]), on_host(expected[a])), leaves << " leaves, array " << a);
  }
}

// Blocks of a power of two leaves on any number of ranks.
BOOST_AUTO_TEST_CASE_TEMPLATE(ranks_together_have_the_bits_of_one, T, Types) {
  const auto ledger = Ledger::create();
  Collectives<Exec> ranks(world(), {}, *ledger);
  const int rank = ranks.communicator().rank(), size = ranks.communicator().size();
  for (const std::int64_t each : {1, 2, 4, 8})
    for (const std::int64_t lacking : {0, 1, 3}) {
      const std::int64_t leaves = size * each - lacking;
      if (lacking >= each) continue;
      const LeafShares blocks{leaves, size};
      if (blocks.each() != each) continue;
      BOOST_TEST(blocks.keep_order());
      const std::int64_t begin = blocks.leaf(rank, 0);
      const auto part = sum_of<T>(begin, begin + blocks.count(rank)), whole = sum_of<T>(0, leaves);
      for (std::size_t i = 0; i < part.size(); ++i) {
        ranks.all_reduce(Exec(), part[i], "gradients");
        BOOST_TEST(same_bits(on_host(part[i]), on_host(whole[i])), leaves << " leaves, array " << i);
      }
    }
}

BOOST_AUTO_TEST_CASE(other_shares_do_not_keep_the_order) {
  BOOST_TEST((LeafShares{3, 1}.keep_order()));
  BOOST_TEST((!LeafShares{6, 2}.keep_order()));
  BOOST_TEST((LeafShares{6, 3}.keep_order()));
  BOOST_TEST((LeafShares{7, 4}.keep_order()));
  BOOST_TEST((!LeafShares{5, 4}.keep_order()));  // the last rank has none
  BOOST_TEST((!LeafShares{0, 2}.keep_order()));
  BOOST_TEST((LeafShares{3, 1, true}.keep_order()));
  BOOST_TEST((LeafShares{6, 2, true}.keep_order()));
  BOOST_TEST((LeafShares{3, 3, true}.keep_order()));
  BOOST_TEST((!LeafShares{6, 3, true}.keep_order()));
  BOOST_TEST((!LeafShares{7, 4, true}.keep_order()));
  BOOST_TEST((!LeafShares{0, 2, true}.keep_order()));
}

// Blocks or turns: the bits of the sum over them are those of one rank exactly where the shares say so, and every leaf
// has one rank.
BOOST_AUTO_TEST_CASE(shares_that_keep_the_order_have_the_bits_of_one) {
  for (const bool in_turns : {false, true})
    for (const int size : {1, 2, 3, 4, 8})
      for (std::int64_t leaves = 0; leaves <= 16; ++leaves) {
        const LeafShares shares{leaves, size, in_turns};
        std::vector<int> seen(static_cast<std::size_t>(leaves));
        for (int r = 0; r < size; ++r)
          for (std::int64_t k = 0; k < shares.count(r); ++k)
            ++seen[static_cast<std::size_t>(shares.leaf(r, k))];
        for (const int times : seen) BOOST_TEST(times == 1);
        if (!shares.keep_order() || leaves == 0) continue;
        const auto term = [](std::int64_t i) { return std::sin(static_cast<float>(i + 1)); };
        const auto of_rank = [&](std::int64_t r) {
          return tree_sum<float>(shares.count(static_cast<int>(r)),
                                 [&](std::int64_t k) { return term(shares.leaf(static_cast<int>(r), k)); });
        };
        const auto of_turn = [&](std::int64_t k) {
          return tree_sum<float>(size,
                                 [&](std::int64_t r) { return term(shares.leaf(static_cast<int>(r), k)); });
        };
        const float sum = in_turns ? tree_sum<float>(shares.each(), of_turn) : tree_sum<float>(size, of_rank);
        BOOST_TEST(sum == tree_sum<float>(leaves, term), in_turns << " " << size << " ranks, " << leaves);
      }
}

BOOST_AUTO_TEST_CASE(errors_say_what_to_do) {
  const auto ledger = Ledger::create();
  const Vector<float> x("x", 3);
  GradientTree<Exec> tree({tensor_ref(x)}, 2, *ledger);
  tree.add(Exec(), 0, 2);
  check_error<NotSupported>([&] { tree.add(Exec(), 2, 3); },
                            "kformer::GradientTree::add: got leaf 2 of 3; expected leaf 1 of at most 2");
  check_error<NotSupported>([&] { tree.add(Exec(), 2, 2, {0, 1}); },
                            "kformer::GradientTree::add: got leaf 2 of 2; expected leaf 1 of at most 2");
  check_error<NotSupported>([&] { GradientTree<Exec>({}, 0, *ledger); },
                            "kformer::GradientTree: most_leaves must be at least 1, got 0");
  const Vector<bf16> half("half", 3);
  check_error<NotSupported>(
      [&] { GradientTree<Exec>({tensor_ref(half)}, 1, *ledger); },
      "kformer::GradientTree: an array is of bf16; expected the gradients, which are of f32 or f64");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
