// SPDX-License-Identifier: MIT
// The reference of flash attention by hand, and the plan.
#include "kformer/ops/attention.hpp"
#include "ops/attention_cases.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention)

using Case = AttentionCase;

BOOST_AUTO_TEST_CASE(reference_by_hand) {
  // Scores 0 and ln 3: probabilities 1/4 and 3/4.
  HostTensor<double> q({1, 1, 1, 1}, 1.0), k({1, 2, 1, 1}), v({1, 2, 1, 1}), dout({1, 1, 1, 1}, 1.0);
  k(0, 1, 0, 0) = std::log(3.0);
  v(0, 0, 0, 0) = 4;
  v(0, 1, 0, 0) = 8;
  const auto near = boost::test_tools::tolerance(1e-15);
  const auto r = ref::attention_forward<double, double>(q, k, v, {}, {});
  BOOST_TEST(r.probabilities(0, 0, 0, 0) == 0.25, near);
  BOOST_TEST(r.probabilities(0, 0, 0, 1) == 0.75, near);
  BOOST_TEST(r.out(0, 0, 0, 0) == 7.0, near);
  BOOST_TEST(r.lse(0, 0, 0) == std::log(4.0), near);
  // dP = (4, 8), Σ P dP = 7, dS = (−3/4, 3/4).
  const auto g = ref::attention_backward<double, double>(q, k, v, {}, dout, {});
  BOOST_TEST(g.dv(0, 0, 0, 0) == 0.25, near);
  BOOST_TEST(g.dv(0, 1, 0, 0) == 0.75, near);
  BOOST_TEST(g.dk(0, 0, 0, 0) == -0.75, near);
  BOOST_TEST(g.dk(0, 1, 0, 0) == 0.75, near);
  BOOST_TEST(g.dq(0, 0, 0, 0) == 0.75 * std::log(3.0), near);
}

BOOST_AUTO_TEST_CASE(visibility_by_hand) {
  auto row = [](Impl::Visibility v, std::int64_t i) {
    std::string seen;
    for (std::int64_t j = 0; j < v.kv_len; ++j) seen += v.sees(i, j) ? 'x' : '.';
    return seen;
  };
  // Bottom-right: the last query has the position of the last key.
  BOOST_TEST(row({2, 4, 0, true}, 0) == "xxx.");
  BOOST_TEST(row({2, 4, 0, true}, 1) == "xxxx");
  BOOST_TEST(row({4, 2, 0, true}, 1) == "..");
  BOOST_TEST(row({4, 2, 0, true}, 2) == "x.");
  BOOST_TEST(row({5, 5, 2, false}, 2) == ".xxx.");
  BOOST_TEST(row({5, 5, 2, true}, 2) == ".xx..");
  BOOST_TEST(row({5, 5, 1, true}, 4) == "....x");
  constexpr std::int64_t widest = std::numeric_limits<std::int64_t>::max();
  BOOST_TEST(row({5, 5, 5, false}, 0) == "xxxxx");
  BOOST_TEST(row({5, 5, widest, false}, 2) == "xxxxx");
  BOOST_TEST(row({5, 5, widest, true}, 2) == "xxx..");
  BOOST_TEST(row({5, 2, widest, false}, 0) == "xx");
}

// The same scores with a sink of ln 4: it takes half of the probability.
BOOST_AUTO_TEST_CASE(sinks_by_hand) {
  HostTensor<double> q({1, 1, 1, 1}, 1.0), k({1, 2, 1, 1}), v({1, 2, 1, 1}), dout({1, 1, 1, 1}, 1.0);
  k.values() = {0, std::log(3.0)};
  v.values() = {4, 8};
  ref::AttentionExtraTensors<double> extras{.bias = HostTensor<double>({1, 1, 1, 2}),
                                            .sinks = HostTensor<double>({1}, std::log(4.0))};
  const auto near = boost::test_tools::tolerance(1e-15);
  const auto r = ref::attention_forward<double, double>(q, k, v, extras, {});
  BOOST_TEST(r.probabilities(0, 0, 0, 0) == 0.125, near);
  BOOST_TEST(r.probabilities(0, 0, 0, 1) == 0.375, near);
  BOOST_TEST(r.lse(0, 0, 0) == std::log(8.0), near);
  BOOST_TEST(r.out(0, 0, 0, 0) == 3.5, near);
  // dP = (4, 8), δ = 3.5, dS = (1/16, 27/16).
  const auto g = ref::attention_backward<double, double>(q, k, v, extras, dout, {});
  BOOST_TEST(g.dbias(0, 0, 0, 0) == 1.0 / 16, near);
  BOOST_TEST(g.dbias(0, 0, 0, 1) == 27.0 / 16, near);
  BOOST_TEST(g.dsinks(0) == -1.75, near);
  BOOST_TEST(g.dk(0, 1, 0, 0) == 27.0 / 16, near);
}

// Scores 0 and ln 3 by other ways.
BOOST_AUTO_TEST_CASE(score_terms_by_hand) {
  const HostTensor<double> q({1, 1, 1, 1}, 1.0), zero({1, 2, 1, 1});
  const auto near = boost::test_tools::tolerance(1e-15);
  const auto second = [&](const HostTensor<double>& k, const ref::AttentionExtraTensors<double>& extras,
                          const AttentionOptions& options) {
    return ref::attention_forward<double, double>(q, k, zero, extras, options).probabilities(0, 0, 0, 1);
  };
  HostTensor<double> bias({1, 1, 1, 2});
  bias(0, 0, 0, 1) = std::log(3.0);
  BOOST_TEST(second(zero, {.bias = bias}, {}) == 0.75, near);
  // The query has the position of the second key, one away from the first.
  BOOST_TEST(second(zero, {.alibi_slopes = HostTensor<double>({1}, std::log(3.0))}, {}) == 0.75, near);
  HostTensor<double> capped = zero;
  capped(0, 1, 0, 0) = 2 * std::atanh(std::log(3.0) / 2);
  BOOST_TEST(second(capped, {}, {.softcap = 2}) == 0.75, near);
}

BOOST_AUTO_TEST_CASE(packed_sequences_and_blocks_by_hand) {
  const auto numbers = [](std::vector<double> values) {
    HostTensor<double> t({static_cast<std::int64_t>(values.size())});
    t.values() = std::move(values);
    return t;
  };
  const auto seen = [](std::int64_t q_len, std::int64_t kv_len,
                       const ref::AttentionExtraTensors<double>& extras, const AttentionOptions& options) {
    const HostTensor<double> q({1, q_len, 1, 1}), k({1, kv_len, 1, 1});
    const ref::AttentionScores<double> scores(q, k, extras, options);
    std::string rows;
    for (std::int64_t i = 0; i < q_len; ++i) {
      if (i > 0) rows += ' ';
      for (std::int64_t j = 0; j < kv_len; ++j) rows += scores.sees(0, 0, i, j) ? 'x' : '.';
    }
    return rows;
  };
  const ref::AttentionExtraTensors<double> sequences{.cu_seqlens_q = numbers({0, 2, 2, 3}),
                                                     .cu_seqlens_kv = numbers({0, 3, 4, 6})};
  BOOST_TEST(seen(3, 6, sequences, {}) == "xxx... xxx... ....xx");
  BOOST_TEST(seen(3, 6, sequences, {.causal = true}) == "xx.... xxx... ....xx");
  BOOST_TEST(seen(3, 6, sequences, {.window = 1}) == ".x.... ..x... .....x");
  ref::AttentionExtraTensors<double> blocks{
      .block_mask = HostTensor<double>({1, 1, 2, 2}), .block_q = 2, .block_kv = 3};
  blocks.block_mask.values() = {1, 0, 0, 1};
  BOOST_TEST(seen(3, 4, blocks, {}) == "xxx. xxx. ...x");
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
