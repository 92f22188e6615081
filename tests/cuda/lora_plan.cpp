// SPDX-License-Identifier: MIT
// Adapters by the plans of products that a column-major library gets.
#include "cuda/column_major_gemm.hpp"
#include "ops/lora/cuda/entries.hpp"
#include "ops/lora_cases.hpp"
#include "support/draws.hpp"

namespace kformer::Testing {
using namespace lora_cases;

BOOST_AUTO_TEST_SUITE(lora_plan)

template <class P>
using Entry = Impl::cuda::LoraEntry<P, Exec, ColumnMajorGemm>;

const auto plans = []<class P>(const P& problem, const std::vector<Output*>& outputs, const auto& verify) {
  static constexpr auto kernel = Entry<P>::entry();
  test_kernels({&kernel, 1}, problem, outputs, verify);
};

constexpr Rows every_rows[] = {Rows::strided, Rows::packed, Rows::aligned};

// Tiles are the library's business. Where there is nothing to sum, plans are refused: see below.
bool is_small(const Case& c) { return terms_of(c) < 1'000'000; }
bool forward_sums(const Case& c) { return is_small(c) && c.in > 0; }
bool backward_sums(const Case& c) {
  return is_small(c) && c.out > 0 &&
         std::all_of(c.parts.begin(), c.parts.end(), [](const Part& p) { return p.columns > 0; });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forward_plans_match_the_oracle, T, Scalars) {
  for (const Case& c : cases)
    for (const Rows rows : every_rows)
      for (const Added added : every_added)
        if (forward_sums(c)) test_forward(Tensors<T>(c, rows), added, plans);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(backward_plans_match_the_oracle, T, Scalars) {
  for (const Case& c : cases)
    for (const Rows rows : every_rows)
      if (backward_sums(c)) test_backward_input(Tensors<T>(c, rows), plans);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_plan_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const std::int64_t columns = draw.any(1, 40);
    const Case c{draw.any(1, 20),
                 draw.any(1, 60),
                 columns + draw.any(0, 9),
                 {{0, columns, draw.any(1, 20), draw.one_of(std::array{0.5, -1.5, 2.0})}}};
    test_forward(Tensors<T>(c, draw.rows(), draw.seed()), draw.one_of(every_added), plans);
    test_backward_input(Tensors<T>(c, draw.rows(), draw.seed()), plans);
  });
}

BOOST_AUTO_TEST_CASE(what_no_library_takes_is_refused) {
  const Case c{4, 6, 5, {{0, 5, 2, 1}}};
  const auto forward = [](const Tensors<float>& t, bool batch_invariant) {
    return Entry<Impl::LoraForward>::reject({t.x.ref(),
                                             t.weight.ref(),
                                             {},
                                             {},
                                             t.a.ref(),
                                             t.parts(),
                                             t.xa.ref(),
                                             t.y.ref(),
                                             {.batch_invariant = batch_invariant}});
  };
  const auto backward = [](const Tensors<float>& t) {
    return Entry<Impl::LoraBackwardInput>::reject(
        {t.weight.ref(), t.a.ref(), t.parts(), t.dy.ref(), t.dxa.ref(), t.dx.ref()});
  };
  const Tensors<float> t(c), no_input(Case{4, 0, 5, {{0, 5, 2, 1}}}),
      no_columns(Case{4, 6, 5, {{0, 0, 2, 1}, {0, 5, 2, 1}}});
  BOOST_TEST(forward(t, false) == "");
  BOOST_TEST(forward(t, true) == Impl::not_batch_invariant);
  BOOST_TEST(backward(t) == "");
  BOOST_TEST(forward(no_input, false) == "the sum is empty");
  BOOST_TEST(forward(no_columns, false) == "");
  BOOST_TEST(backward(no_columns) == "the sum is empty");
}

// The refusal of any product is that of the whole.
struct OnlyLowRank : ColumnMajorGemm {
  static std::string refusal(const MatmulPlan& p) { return p.d.rows > 2 ? "too wide" : ""; }
};
BOOST_AUTO_TEST_CASE(every_product_is_asked_for) {
  const Tensors<float> t(Case{4, 6, 5, {{0, 5, 2, 1}}});
  BOOST_TEST((Impl::cuda::LoraEntry<Impl::LoraBackwardInput, Exec, OnlyLowRank>::reject(
                  {t.weight.ref(), t.a.ref(), t.parts(), t.dy.ref(), t.dxa.ref(), t.dx.ref()}) == "too wide"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
