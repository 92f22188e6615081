// SPDX-License-Identifier: MIT
// A sequence has the same bits in every batch.
#include "model/multi_head_attention_case.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(batch_invariant_modules)

BOOST_AUTO_TEST_CASE_TEMPLATE(attention_of_a_sequence_alone_and_in_a_batch, T, Scalars) {
  for (const bool cross : {false, true})
    for (const std::int64_t seq_len : {1, 5, 33}) {
      constexpr std::int64_t batch = 9;
      const auto of = [&](std::int64_t sequences) {
        return MultiHeadAttentionCase{"",
                                      {.hidden_size = 96,
                                       .num_attention_heads = 4,
                                       .num_key_value_heads = 2,
                                       .attention = {.causal = !cross, .batch_invariant = true}},
                                      {sequences, seq_len, cross ? 17 : 0},
                                      cross,
                                      cross};
      };
      Module<T> all(of(batch));
      all.forward();
      const auto y = all.y.template read<double>().values();
      for (std::int64_t s = 0; s < batch; ++s) {
        Module<T> alone(of(1));  // with the same weights
        const auto take = [&](TestTensor<Exec, T>& to, const TestTensor<Exec, T>& from) {
          const auto values = from.template read<double>().values();
          const std::size_t size = values.size() / batch;
          to.fill([&](std::size_t i) {
            return static_cast<compute_t<T>>(values[static_cast<std::size_t>(s) * size + i]);
          });
        };
        take(alone.x, all.x);
        take(alone.context, all.context);
        alone.forward();
        const auto found = alone.y.template read<double>().values();
        const auto expected = y.begin() + s * std::ssize(found);
        BOOST_TEST(std::equal(found.begin(), found.end(), expected),
                   (cross ? "cross-attention, " : "self-attention, ") << seq_len << " tokens, sequence " << s);
      }
    }
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
