// SPDX-License-Identifier: MIT
// The tensor-core kernels of attention on emulated CUDA blocks, against the reference by the rule.
#include "cuda/nan_of_forward.hpp"
#include "cuda/wrong_starts.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention/cuda/entries.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_emulated)

using Case = AttentionCase;
constexpr auto kernel = Impl::cuda::ForwardEntry<Exec>::entry();

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_and_positions, T, Halves) {
  for (const Case& c : {
           Case{16, 1, 1, 1, 1, 8, 8},
           Case{4, 75, 75, 4, 1, 8, 40}.causal(),
           Case{1, 113, 113, 3, 3, 16, 8}.window(20),
           Case{1, 65, 97, 2, 1, 64, 80}.causal().window(33),
           Case{1, 113, 75, 1, 1, 80, 64}.causal(),
           Case{1, 20, 9, 8, 1, 8, 8}.window(3),
           Case{2, 1, 113, 4, 1, 64, 64},
           Case{1, 260, 260, 2, 1, 16, 16}.causal(),
           Case{1, 130, 260, 2, 2, 16, 16}.causal().window(70),
           Case{1, 75, 113, 2, 1, 8, 8}.causal().spread(5),
           Case{1, 5, 0, 2, 1, 8, 8},
           Case{1, 0, 5, 2, 1, 8, 8}.causal(),
           Case{0, 5, 5, 2, 1, 8, 8},
           Case{1, 130, 70, 2, 1, 64, 64}.softcap(2),
           Case{1, 150, 200, 2, 1, 64, 64}.packed({1, 75, 0, 74}, {33, 100, 7, 60}).causal(),
       })
    check_forward<T>(kernel, c);
}

BOOST_AUTO_TEST_CASE_TEMPLATE(head_dimensions, T, Halves) {
  for (const std::int64_t dim : {8, 24, 40, 64, 72, 96, 104, 128, 136, 192, 256})
    check_forward<T>(kernel, Case{1, 66, 75, 2, 1, dim, dim}.causal());
  check_forward<T>(kernel, {1, 66, 75, 2, 1, 192, 128});
  check_forward<T>(kernel, {1, 66, 75, 2, 2, 24, 96});
}

BOOST_AUTO_TEST_CASE(wrong_starts_stay_inside) { check_wrong_starts_of_forward(kernel); }

BOOST_AUTO_TEST_CASE_TEMPLATE(nan_stays_where_it_is_seen, T, Halves) {
  check_nan_of_forward<T>(kernel, {1, 66, 75, 1, 1, 256, 136});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
