// SPDX-License-Identifier: MIT
// Every entry of the kernel lists of flash attention against the reference.
#include <optional>
#include <vector>

#include "kformer/ops/impl/flash_backward.hpp"
#include "kformer/ops/impl/flash_forward.hpp"
#include "ops/attention_cases.hpp"
#include "support/draws.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(attention_kernels)

using Case = AttentionCase;

template <class T>
void test_both(AttentionTensors<T> t) {
  const auto naive = t.template forward<naive_t<T>, T>();
  check_forward(kernels<Impl::AttentionForward, Exec>(), t, naive);
  check_backward(kernels<Impl::AttentionBackward, Exec>(), t, naive);
}

template <class T>
void test_both(const std::vector<Case>& cases) {
  for (const Case& c : cases) test_both(AttentionTensors<T>(c));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(shapes_and_positions, T, Scalars) {
  test_both<T>(edge_cases());
  test_both<T>({
      Case{3, 1, 1, 1, 1, 1, 1},
      Case{3, 75, 75, 4, 1, 8, 5}.causal(),
      Case{1, 113, 113, 3, 3, 5, 8}.window(20),
      Case{4, 20, 9, 8, 1, 8, 8}.window(3),
      Case{3, 1, 113, 4, 1, 64, 64},
      Case{3, 75, 1, 2, 1, 8, 8},
      Case{1, 130, 260, 2, 2, 16, 16}.causal().window(70),
      Case{2, 75, 113, 2, 1, 8, 8}.spread(5),
      Case{2, 75, 113, 2, 1, 8, 8}.causal().spread(5),
      Case{4, 5, 7, 4, 2, 0, 64},
      Case{1, 5, 7, 2, 1, 8, 0},
      Case{1, 521, 521, 1, 1, 8, 8}.causal(),
      Case{1, 75, 700, 1, 1, 8, 8}.causal(),
      Case{1, 75, 1025, 4, 1, 16, 16}.causal().window(300),
      Case{1, 40, 75, 2, 1, 8, 8}.window(std::numeric_limits<std::int64_t>::max()),
      Case{2, 75, 40, 2, 1, 8, 8}.causal().window(std::numeric_limits<std::int64_t>::max()),
      Case{1, 2, 300, 2, 1, 8, 8}.window(std::numeric_limits<std::int64_t>::max()),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const std::int64_t kv_heads = draw.any(1, 3), keys = draw.any(1, 70);
    // A few queries are those of decoding, which has kernels of its own.
    const std::int64_t queries = draw.one_in(3) ? keys : draw.one_in(3) ? draw.any(1, 4) : draw.any(1, 70);
    Case c{draw.any(1, 2), queries,         keys,           kv_heads * draw.any(1, 3),
           kv_heads,       draw.any(1, 40), draw.any(1, 40)};
    c.options.causal = draw.one_in(2);
    if (draw.one_in(4)) c = c.window(draw.any(1, 9));
    if (draw.one_in(4)) c = c.scale(draw.one_of(std::array{0.3, -0.7}));
    if (draw.one_in(4)) c = c.softcap(5);
    if (draw.one_in(4))
      c = c.bias(draw.one_of(std::array{Bias::full, Bias::queries_and_keys, Bias::keys_per_batch}));
    if (draw.one_in(4)) c = c.alibi();
    if (draw.one_in(4)) c = c.sinks();
    if (draw.one_in(6)) c = c.blocks(draw.any(1, 40), draw.any(1, 40));
    test_both(AttentionTensors<T>(c.spread(draw.spread()), draw.rows(), draw.seed()));
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(head_dimensions, T, Scalars) {
  std::vector<Case> cases;
  for (const std::int64_t dim : {1, 5, 8, 24, 40, 64, 72, 80, 96, 100, 128, 192, 256})
    cases.push_back(Case{1, 66, 75, 2, 1, dim, dim}.causal());
  cases.push_back({1, 66, 75, 2, 1, 192, 128});
  cases.push_back({1, 66, 75, 2, 2, 24, 96});
  test_both<T>(cases);
}

// Forward has kernels of its own for these. To backward they are rows like any others: two will do.
BOOST_AUTO_TEST_CASE_TEMPLATE(few_queries_and_many_keys, T, Scalars) {
  for (const Case& c : {
           Case{1, 1, 2999, 8, 8, 32, 32}.causal(),
           Case{1, 1, 3000, 4, 1, 128, 128}.causal(),
           Case{2, 1, 1025, 8, 1, 64, 64}.window(300),
           Case{1, 2, 1025, 8, 1, 40, 24}.causal(),
           Case{1, 3, 513, 16, 2, 64, 64}.causal().sinks(),
           Case{1, 4, 513, 8, 1, 80, 80}.causal().softcap(2),
           Case{2, 4, 301, 8, 2, 100, 36}.causal(),
           Case{4, 1, 139, 5, 1, 17, 31}.window(77),
       }) {
    AttentionTensors<T> t(c);
    check_forward(kernels<Impl::AttentionForward, Exec>(), t, t.template forward<naive_t<T>, T>());
  }
  test_both<T>({
      Case{1, 4, 777, 8, 2, 32, 32}.alibi().constant_bias(Bias::full),
      Case{1, 1, 1, 8, 1, 32, 32}.packed({1, 2, 1, 0, 1}, {513, 700, 1, 40, 0}).causal(),
  });
}

// Scales far from 1/√head_dim, of either sign, and head ratios that are no power of two, over several tiles.
BOOST_AUTO_TEST_CASE_TEMPLATE(scales_and_odd_head_ratios, T, Scalars) {
  for (const double scale : {0.3, -0.7})
    test_both<T>({
        Case{1, 75, 140, 6, 2, 24, 24}.scale(scale),
        Case{1, 140, 140, 3, 1, 40, 24}.causal().window(70).scale(scale),
        Case{1, 75, 140, 3, 1, 24, 40}.scale(scale).softcap(2).alibi(),
        Case{1, 75, 140, 3, 1, 16, 16}.scale(scale).bias(Bias::full),
        Case{1, 75, 140, 5, 1, 16, 16}.causal().scale(scale).sinks(),
        Case{4, 2, 300, 6, 2, 24, 24}.causal().scale(scale),
        Case{4, 3, 300, 5, 1, 24, 24}.causal().scale(scale).softcap(2),
    });
}

// Terms cancel where softmax has few keys, or is nearly 0 and 1: the errors of a kernel are then large beside the result.
BOOST_AUTO_TEST_CASE_TEMPLATE(gradients_that_cancel, T, Scalars) {
  for (const std::int64_t dim : {8, 64, 256})
    test_both<T>({
        Case{1, 2, 2, 1, 1, dim, dim},
        Case{1, 2, 2, 2, 1, dim, dim}.causal(),
        Case{2, 1, 3, 2, 1, dim, dim},
        Case{1, 64, 64, 2, 1, dim, dim}.causal().window(2),
        Case{1, 40, 75, 2, 1, dim, dim}.causal().sinks(),
        Case{1, 3, 3, 4, 1, dim, dim}.sinks(),
    });
  test_both<T>({
      Case{1, 75, 113, 2, 1, 64, 64}.spread(5),  // scores of ±200
      Case{1, 75, 113, 2, 1, 64, 64}.causal().spread(5).sinks(),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(score_terms, T, Scalars) {
  test_both<T>({
      Case{2, 75, 113, 4, 2, 8, 8}.softcap(1),
      Case{2, 75, 113, 4, 1, 8, 8}.causal().window(40).softcap(20).spread(3),
      Case{2, 75, 113, 8, 2, 8, 8}.alibi(),
      Case{1, 113, 75, 8, 1, 24, 16}.causal().alibi(),  // the first queries see nothing
      Case{2, 75, 113, 4, 2, 8, 8}.bias(Bias::full),
      Case{2, 75, 113, 4, 2, 8, 8}.constant_bias(Bias::full),
      Case{2, 75, 113, 4, 2, 8, 8}.causal().window(50).bias(Bias::full),
      Case{2, 66, 70, 4, 4, 8, 12}.causal().bias(Bias::queries_and_keys),
      Case{3, 9, 75, 2, 1, 8, 8}.bias(Bias::keys_per_batch),
      Case{3, 113, 75, 2, 1, 8, 8}.constant_bias(Bias::keys_per_batch),
      Case{1, 5, 0, 2, 1, 8, 8}.bias(Bias::full),
      Case{2, 0, 5, 2, 1, 8, 8}.bias(Bias::keys_per_batch),
      Case{1, 75, 113, 8, 2, 8, 8}.sinks(),
      Case{1, 113, 75, 8, 1, 8, 8}.causal().sinks(),  // the first queries see only the sink
      Case{1, 20, 0, 4, 1, 8, 8}.sinks(),
      Case{1, 75, 113, 8, 1, 8, 16}.causal().window(30).softcap(3).alibi().sinks().bias(Bias::full),
      Case{2, 75, 113, 3, 3, 16, 8}.softcap(2).alibi().sinks().bias(Bias::queries_and_keys),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(packed_sequences, T, Scalars) {
  const Case c{1, 0, 0, 4, 2, 8, 8};
  const std::vector<int> lengths{75, 0, 1, 113, 64}, others{64, 7, 0, 200, 65};
  test_both<T>({
      c.packed(lengths, lengths),
      c.packed(lengths, lengths).causal(),
      c.packed(lengths, others),
      c.packed(lengths, others).causal().window(30),
      c.packed({}, {}),
      c.packed({0, 0}, {0, 3}),
      c.packed({130}, {75}).causal(),
      c.packed(std::vector<int>(40, 3), std::vector<int>(40, 5)).causal(),
      Case{1, 0, 0, 4, 1, 24, 40}.packed(lengths, others).causal().softcap(2).alibi().sinks(),
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(block_masks, T, Scalars) {
  const Case c{2, 75, 113, 4, 2, 8, 8};
  test_both<T>({
      c.blocks(1, 1),
      c.blocks(16, 16).causal(),
      c.blocks(64, 64),
      c.blocks(100, 100),
      c.blocks(33, 50).window(40),
      Case{1, 260, 330, 2, 1, 16, 16}.blocks(64, 64).causal(),
      Case{1, 260, 330, 2, 1, 16, 16}.blocks(128, 32),
      Case{1, 130, 200, 4, 1, 8, 16}.blocks(16, 64).causal().softcap(2).alibi().sinks(),
      Case{1, 130, 200, 4, 1, 8, 16}.blocks(64, 16).bias(Bias::full),
  });
}

// The oracle computes nothing from hidden keys, and two NaN compare equal: so NaN must be exactly where it
// belongs.
BOOST_AUTO_TEST_CASE_TEMPLATE(nan_stays_where_it_is_seen, T, Scalars) {
  const Case c{2, 75, 113, 2, 1, 8, 8}, longer{2, 113, 75, 2, 1, 8, 8};
  const Case packed = Case{1, 0, 0, 4, 2, 8, 8}.packed({40, 30, 0, 5}, {70, 20, 3, 0}).causal();
  const Case blocks = c.blocks(16, 16), bias = c.bias(Bias::full);
  // Queries that see an odd number of keys, alone or together, share a tile with one that sees the next key.
  const Case odd = Case{1, 49, 50, 64, 64, 8, 8}.causal(), together = Case{33, 2, 4, 48, 1, 8, 8}.causal();
  // Rows of whole vectors, which kernels may read where they lie.
  const Case whole{2, 75, 113, 2, 1, 16, 16};
  test_both<T>({
      whole.causal().poison(Poison::last_value),
      whole.causal().poison(Poison::last_key),
      whole.window(10).poison(Poison::hidden_keys),
      odd.poison(Poison::last_value),
      odd.poison(Poison::last_key),
      together.poison(Poison::last_value),
      together.poison(Poison::last_key),
      c.window(10).poison(Poison::hidden_keys),
      c.causal().window(10).poison(Poison::hidden_keys),
      c.bias(Bias::keys_per_batch).poison(Poison::hidden_keys),
      bias.causal().poison(Poison::hidden_keys),
      packed.poison(Poison::hidden_keys),
      blocks.poison(Poison::hidden_keys),
      Case{1, 75, 113, 4, 1, 8, 8}.window(10).softcap(3).alibi().sinks().poison(Poison::hidden_keys),
      longer.causal().poison(Poison::blind_queries),
      bias.poison(Poison::blind_queries),
      packed.poison(Poison::blind_queries),
      blocks.poison(Poison::blind_queries),
      Case{1, 113, 75, 4, 1, 8, 8}.causal().sinks().poison(Poison::blind_queries),
      longer.causal().softcap(3).alibi().poison(Poison::blind_queries),
      c.causal().poison(Poison::last_value),
      bias.poison(Poison::last_value),
      packed.poison(Poison::last_value),
      blocks.poison(Poison::last_value),
      c.causal().poison(Poison::last_key),
      bias.poison(Poison::last_key),
      packed.poison(Poison::last_key),
      blocks.poison(Poison::last_key),
      c.causal().softcap(3).alibi().poison(Poison::last_key),
      c.causal().poison(Poison::first_gradient),
      bias.poison(Poison::first_gradient),
      packed.poison(Poison::first_gradient),
      blocks.poison(Poison::first_gradient),
  });
}

// Forward and backward kernels may sum a score in different orders. Their difference must not overflow in exp.
using Wide = std::tuple<float, double>;
BOOST_AUTO_TEST_CASE_TEMPLATE(large_scores_leave_the_gradients_finite, T, Wide) {
  AttentionTensors<T> t(Case{1, 4, 300, 4, 2, 64, 64}.spread(1).scale(sizeof(T) == 4 ? 1e4 : 1e13));
  const auto run = [](const auto& kernel, const auto& problem) {
    if (!kernel.reject(problem).empty()) return false;
    const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", kernel.workspace_bytes(problem));
    kernel.run(Exec(), problem, workspace);
    Exec().fence("kformer::Testing::attention");
    return true;
  };
  for (const auto& forward : kernels<Impl::AttentionForward, Exec>()) {
    if (!run(forward, t.forward_problem())) continue;
    for (const auto& backward : kernels<Impl::AttentionBackward, Exec>()) {
      if (!run(backward, t.backward_problem())) continue;
      for (const auto* gradient : {&t.dq, &t.dk, &t.dv})
        BOOST_TEST(std::ranges::all_of(gradient->template read<double>().values(),
                                       [](double x) { return std::isfinite(x); }),
                   forward.name << ", " << backward.name);
    }
  }
}

// Scores 0 and 1024: weights of e⁻¹⁰²⁴ are 0, and so are factors for earlier sums.
BOOST_AUTO_TEST_CASE_TEMPLATE(weights_below_the_normal_numbers_vanish, T, Wide) {
  for (const std::int64_t queries : {1, 4})
    for (const std::size_t greatest : {5, 290}) {
      AttentionTensors<T> t(Case{1, queries, 300, 4, 1, 64, 64}.scale(1));
      t.q.fill([](std::size_t) { return 1; });
      t.k.fill([&](std::size_t i) { return i / 64 == greatest ? 16 : 0; });
      t.v.fill([&](std::size_t i) { return i / 64 == greatest ? 0 : 1; });
      test_every_kernel(t.forward_problem(), {&t.out, &t.lse}, [&](const std::string& kernel) {
        const auto all_are = [&](const auto& tensor, double expected) {
          return std::ranges::all_of(tensor.template read<double>().values(),
                                     [=](double x) { return x == expected; });
        };
        BOOST_TEST(all_are(t.out, 0), kernel);
        BOOST_TEST(all_are(t.lse, 1024), kernel);
      });
    }
}

BOOST_AUTO_TEST_CASE(queries_that_see_nothing) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const auto& sink : std::vector<std::optional<double>>{std::nullopt, 0.5, -infinity}) {
    const Case c = Case{1, 3, 1, 1, 1, 4, 4}.causal().scale(2);
    AttentionTensors<float> t(sink ? c.sinks() : c);
    if (sink) t.sinks.fill([&](std::size_t) { return static_cast<float>(*sink); });
    for (const auto& kernel : kernels<Impl::AttentionForward, Exec>()) {
      if (!kernel.reject(t.forward_problem()).empty()) continue;
      const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace",
                                                                   kernel.workspace_bytes(t.forward_problem()));
      kernel.run(Exec(), t.forward_problem(), workspace);
      Exec().fence("kformer::Testing::attention");
      const auto out = t.out.read<double>(), lse = t.lse.read<double>();
      for (std::int64_t i = 0; i < 2; ++i) {
        BOOST_TEST(lse(0, 0, i) == sink.value_or(-infinity), kernel.name);
        for (std::int64_t d = 0; d < 4; ++d) BOOST_TEST(out(0, i, 0, d) == 0, kernel.name);
      }
      BOOST_TEST(std::isfinite(lse(0, 0, 2)));
    }
  }
}

// As a forecast has it, that takes no memory.
BOOST_AUTO_TEST_CASE(a_workspace_is_planned_without_the_starts_of_sequences) {
  const Kokkos::View<std::int32_t*, Kokkos::LayoutRight, Exec::memory_space,
                     Kokkos::MemoryTraits<Kokkos::Unmanaged>>
      none(nullptr, 4);
  const AttentionShape shape{DType::bf16, 1, 3, 1 << 20, 8, 2, 64, 64};
  const std::size_t packed =
      attention_forward_workspace_bytes(Exec(), shape, {}, AttentionExtras<Exec>().sequences(none, none));
  BOOST_TEST(packed > 0u);
  if (Impl::is_host_space<Exec>) BOOST_TEST(packed == attention_forward_workspace_bytes(Exec(), shape));
}

// A device cannot refuse them: that would need a fence. They must not lead out of the operands.
BOOST_AUTO_TEST_CASE(wrong_sequence_lengths_stay_inside) {
  AttentionTensors<float> t(Case{1, 0, 0, 2, 1, 8, 8}.packed({30, 40, 50}, {50, 40, 30}).causal());
  const std::vector<std::int32_t> wrong{70, -100, 2000000000, 3};
  t.cu_seqlens_q.fill([&](std::size_t n) { return wrong[n]; });
  t.cu_seqlens_kv.fill([&](std::size_t n) { return wrong[3 - n]; });
  t.save(ref::AttentionResult<double>{HostTensor<double>({1, 120, 2, 8}), HostTensor<double>({1, 2, 120}), {}});
  const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", 1 << 16);
  Impl::attention_forward_kokkos<float>(Exec(), t.forward_problem());
  Impl::attention_backward_kokkos<float>(Exec(), t.backward_problem(), workspace);
  Exec().fence("kformer::Testing::attention");
  for (const Output* output : std::vector<Output*>{&t.out, &t.lse, &t.dq, &t.dk, &t.dv})
    BOOST_TEST(output->guards_intact());
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
