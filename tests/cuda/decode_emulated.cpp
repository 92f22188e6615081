// SPDX-License-Identifier: MIT
// Decoding on emulated CUDA blocks, against the reference by the rule.
#include "cuda/wrong_starts.hpp"
#include "ops/attention/cuda/entries.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(decode_emulated)

using Case = AttentionCase;
using Entry = Impl::cuda::DecodeEntry<Exec>;
constexpr auto kernel = Entry::entry();

BOOST_AUTO_TEST_CASE_TEMPLATE(few_queries_and_many_keys, T, Halves) {
  for (const Case& c : {
           Case{1, 1, 1999, 8, 8, 32, 32}.causal(),
           Case{1, 1, 1000, 4, 1, 128, 128}.causal(),
           Case{2, 1, 1025, 8, 1, 64, 64}.window(300),
           Case{1, 2, 1025, 8, 1, 40, 24}.causal(),
           Case{1, 3, 513, 16, 2, 64, 64}.causal(),
           Case{1, 4, 513, 8, 1, 80, 80}.causal().softcap(2),
           Case{2, 4, 301, 8, 2, 104, 40}.causal(),
           Case{4, 1, 139, 5, 1, 16, 32}.window(77),
           Case{1, 1, 300, 2, 1, 256, 256},
       })
    check_forward<T>(kernel, c);
}

// Up to 64 rows: queries times heads of a group.
BOOST_AUTO_TEST_CASE_TEMPLATE(several_tiles_of_rows, T, Halves) {
  for (const Case& c : {
           Case{1, 17, 200, 1, 1, 16, 16}.causal(),
           Case{1, 4, 333, 16, 1, 64, 48}.causal().window(100),
           Case{1, 1, 130, 40, 1, 128, 128},
           Case{2, 9, 139, 14, 2, 96, 24}.causal().softcap(3),
           Case{1, 3, 150, 21, 1, 256, 192}.causal(),
       })
    check_forward<T>(kernel, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(short_and_empty_problems, T, Halves) {
  for (const Case& c : {
           Case{16, 1, 1, 1, 1, 8, 8},
           Case{1, 5, 0, 2, 1, 8, 8},
           Case{1, 0, 5, 2, 1, 8, 8}.causal(),
           Case{0, 5, 5, 2, 1, 8, 8},
           Case{1, 5, 5, 0, 2, 8, 8},
           Case{1, 20, 9, 2, 1, 8, 8}.causal(),   // the first queries see nothing
           Case{1, 20, 9, 2, 1, 8, 8}.window(3),  // likewise
           Case{1, 3, 200, 2, 1, 8, 8}.causal().spread(5),
       })
    check_forward<T>(kernel, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(packed_sequences, T, Halves) {
  for (const Case& c : {
           Case{1, 1, 1, 8, 1, 32, 32}.packed({1, 2, 1, 0, 1}, {513, 700, 1, 40, 0}).causal(),
           Case{1, 1, 1, 4, 2, 64, 64}.packed({1, 1, 1}, {3, 400, 65}).causal().window(130),
           Case{1, 1, 1, 4, 1, 16, 24}.packed({1, 30, 0, 1}, {90, 75, 10, 200}).causal(),
           Case{1, 1, 1, 16, 1, 8, 8}.packed({1, 2, 9}, {90, 75, 100}).softcap(2),
           Case{1, 1, 1, 4, 1, 8, 8}.packed({0, 0}, {0, 3}),
       })
    check_forward<T>(kernel, c);
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) { check_wrong_starts_of_forward(kernel); }

// Two NaN compare equal: so NaN must be exactly where it belongs.
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_stays_where_it_is_seen, T, Halves) {
  const Case c{2, 4, 301, 8, 2, 64, 40}, one{3, 1, 301, 4, 1, 16, 16}, many{1, 13, 213, 4, 1, 24, 96},
      large{1, 3, 75, 2, 1, 256, 136}, longer{2, 12, 5, 1, 1, 16, 16};
  const Case packed = Case{1, 0, 0, 4, 2, 8, 8}.packed({4, 3, 0, 5}, {170, 20, 3, 0}).causal();
  for (const Case& of : {
           one.window(40).poison(Poison::hidden_keys),
           one.causal().window(40).poison(Poison::hidden_keys),
           c.causal().window(40).poison(Poison::hidden_keys),
           packed.poison(Poison::hidden_keys),
           longer.causal().poison(Poison::blind_queries),
           packed.poison(Poison::blind_queries),
       })
    check_forward<T>(kernel, of);
  for (const Poison what : {Poison::last_value, Poison::last_key})
    for (const Case& of : {c.causal(), c.causal().window(40).softcap(3), many.causal(), large.causal(), packed})
      check_forward<T>(kernel, of.poison(what));
}

BOOST_AUTO_TEST_CASE(refusals) {
  const auto refusal = [](const Case& c) {
    return Entry::reject(AttentionTensors<bf16>(c, Rows::aligned).forward_problem());
  };
  const Case c{1, 1, 1, 64, 1, 8, 8};
  BOOST_TEST(refusal(c) == "");
  BOOST_TEST(refusal({1, 1, 1, 65, 1, 8, 8}) == "65 queries share a key head, but it supports at most 64");
  BOOST_TEST(refusal({1, 33, 1, 2, 1, 8, 8}) == "66 queries share a key head, but it supports at most 64");
  BOOST_TEST(refusal(c.packed({1, 2}, {5, 5})) == "128 queries share a key head, but it supports at most 64");
  BOOST_TEST(!refusal(c.sinks()).empty());
  const AttentionTensors<bf16> t(c, Rows::aligned);
  auto problem = t.forward_problem();
  problem.workspace_bytes = Entry::workspace_bytes(problem) - 1;
  BOOST_TEST(Entry::reject(problem) == "it needs a workspace of 2560 bytes, 2559 were given");
}

// Two blocks for each of 132 multiprocessors, as long as there are keys for them.
BOOST_AUTO_TEST_CASE(parts_follow_the_problem) {
  const auto parts = [](const Case& c) {
    return Entry::parts_of(AttentionTensors<bf16>(c, Rows::aligned).forward_problem());
  };
  BOOST_TEST(parts({1, 1, 5120, 4, 4, 8, 8}) == 40);
  BOOST_TEST(parts({1, 1, 5120, 8, 8, 8, 8}) == 33);
  BOOST_TEST(parts({1, 1, 300, 8, 8, 8, 8}) == 3);
  BOOST_TEST(parts({16, 1, 512, 8, 8, 8, 8}) == 2);
  BOOST_TEST(parts({34, 1, 512, 8, 8, 8, 8}) == 1);
  BOOST_TEST(parts({1, 1, 0, 8, 8, 8, 8}) == 1);
  BOOST_TEST(parts(Case{1, 1, 5120, 8, 2, 8, 8}.causal().window(500)) == 4);
  BOOST_TEST(parts(Case{1, 1, 5120, 8, 2, 8, 8}.window(500)) == 8);
  BOOST_TEST(parts(Case{1, 1, 1, 8, 8, 8, 8}.packed({1, 1}, {900, 100})) == 4);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
