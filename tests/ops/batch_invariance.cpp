// SPDX-License-Identifier: MIT
// That a row has the same bits whatever the other rows are, and however many: every kernel that takes the option.
#include <vector>

#include "kformer/core/tensor_parts.hpp"
#include "kformer/ops/attention.hpp"
#include "kformer/ops/linear_cross_entropy.hpp"
#include "kformer/ops/linear_epilogues.hpp"
#include "kformer/ops/lora.hpp"
#include "kformer/ops/quantized.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {

BOOST_AUTO_TEST_SUITE(batch_invariance)

/// Some neighbouring rows.
struct RowSpan {
  std::int64_t first, count;
};

// Alone, few in different places, about as many as a block of registers, tiles with a rest, all.
constexpr std::int64_t all_rows = 300;
const std::vector<RowSpan> parts{{0, 1},   {299, 1},  {7, 3},    {100, 8},     {31, 32},
                                 {64, 33}, {90, 100}, {255, 45}, {0, all_rows}};

/// Runs `problem(span, output)` on each part of the rows with each kernel of the list: `output` has the rows of
/// the part alone. Compares with what the kernel made of all rows.
template <class T, class F>
void check_rows(std::int64_t columns, F problem) {
  TestTensor<Exec, T> all({all_rows, columns});
  const auto of_all = problem(RowSpan{0, all_rows}, all);
  using Problem = std::remove_const_t<decltype(of_all)>;
  bool ran = false;
  for (const auto& kernel : kernels<Problem, Exec>()) {
    if (!kernel.reject(of_all).empty()) continue;
    ran = true;
    const auto run = [&](const Problem& p) {
      p.check();
      BOOST_TEST_REQUIRE(kernel.reject(p).empty(), kernel.name << " accepts all rows, but refuses some");
      const Kokkos::View<std::byte*, Exec::memory_space> workspace("kformer::Testing::workspace",
                                                                   kernel.workspace_bytes(p));
      kernel.run(Exec(), p, workspace);
      Exec().fence("kformer::Testing::batch_invariance");
    };
    all.reset();
    run(of_all);
    const auto expected = all.template read<double>();
    for (const RowSpan& part : parts) {
      TestTensor<Exec, T> some({part.count, columns}, Rows::packed);
      run(problem(part, some));
      const auto found = some.template read<double>();
      std::int64_t different = 0;
      for (std::int64_t r = 0; r < part.count; ++r)
        for (std::int64_t c = 0; c < columns; ++c) different += found(r, c) != expected(part.first + r, c);
      BOOST_TEST(different == 0, Problem::function << '[' << kernel.name << "] " << different
                                                   << " numbers differ in rows " << part.first << " to "
                                                   << part.first + part.count);
    }
  }
  BOOST_TEST(ran, "no kernel is batch-invariant");
}

/// x and weights of a product.
template <class T>
struct Factors {
  static constexpr std::int64_t in = 530, out = 170;  // several steps of the sum, with a rest
  std::mt19937 generator{20261125};
  TestTensor<Exec, T> x = TestTensor<Exec, T>({all_rows, in}).random(generator);
  TestTensor<Exec, T> weight = TestTensor<Exec, T>({out, in}, Rows::packed).random(generator);
  TestTensor<Exec, T> bias = TestTensor<Exec, T>({out}).random(generator);
  TestTensor<Exec, T> residual = TestTensor<Exec, T>({all_rows, out}).random(generator);

  TensorRef rows(const TestTensor<Exec, T>& t, RowSpan s) const {
    return Impl::rows_of(t.ref(), s.first, s.count);
  }
};

BOOST_AUTO_TEST_CASE_TEMPLATE(products, T, Scalars) {
  const Factors<T> f;
  check_rows<T>(f.out, [&](RowSpan s, const TestTensor<Exec, T>& y) {
    return Impl::LinearForward{
        f.rows(f.x, s), f.weight.ref(), f.bias.ref(), {}, y.ref(), {.scale = 0.7, .batch_invariant = true}};
  });
  check_rows<T>(f.out, [&](RowSpan s, const TestTensor<Exec, T>& y) {
    return Impl::LinearForward{f.rows(f.x, s),        f.weight.ref(), {},
                               f.rows(f.residual, s), y.ref(),        {.batch_invariant = true}};
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(products_with_an_activation, T, Scalars) {
  const Factors<T> f;
  // What it computes is beside the saved product, which would hide nothing either.
  std::vector<TestTensor<Exec, T>> saved;
  saved.reserve(100);
  check_rows<T>(f.out / 2, [&](RowSpan s, const TestTensor<Exec, T>& y) {
    saved.emplace_back(std::vector<std::int64_t>{s.count, f.out});
    return Impl::LinearSwigluForward{
        f.rows(f.x, s), f.weight.ref(), saved.back().ref(), y.ref(), {.batch_invariant = true}};
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(rotated_products, T, Scalars) {
  Factors<T> f;
  using C = compute_t<T>;
  // One sequence for each row, so that every row has the same position.
  const auto cos = TestTensor<Exec, C>({1, 8}).random(f.generator),
             sin = TestTensor<Exec, C>({1, 8}).random(f.generator);
  check_rows<T>(f.out, [&](RowSpan s, const TestTensor<Exec, T>& y) {
    return Impl::LinearRopeForward{f.rows(f.x, s),
                                   f.weight.ref(),
                                   f.bias.ref(),
                                   y.ref(),
                                   cos.ref(),
                                   sin.ref(),
                                   {.heads = 9, .seq_len = 1, .linear = {.batch_invariant = true}}};
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(adapters, T, Scalars) {
  Factors<T> f;
  const auto a = TestTensor<Exec, T>({21, f.in}).random(f.generator);
  const auto b0 = TestTensor<Exec, T>({90, 16}).random(f.generator),
             b1 = TestTensor<Exec, T>({60, 5}).random(f.generator);
  Impl::LoraFactors adapters;
  adapters.count = 2;
  adapters.part[0] = {b0.ref(), 0, 0.5};
  adapters.part[1] = {b1.ref(), 100, -2};
  std::vector<TestTensor<Exec, T>> saved;
  saved.reserve(100);
  check_rows<T>(f.out, [&](RowSpan s, const TestTensor<Exec, T>& y) {
    saved.emplace_back(std::vector<std::int64_t>{s.count, 21});
    return Impl::LoraForward{f.rows(f.x, s), f.weight.ref(),     {},      f.rows(f.residual, s),    a.ref(),
                             adapters,       saved.back().ref(), y.ref(), {.batch_invariant = true}};
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(quantized_products, T, Scalars) {
  constexpr std::int64_t in = 530, out = 72, rank = 5;  // the last block of a row is not full
  std::mt19937 generator(3);
  const auto tensor = [&](std::int64_t rows, std::int64_t columns) {
    return TestTensor<Exec, T>({rows, columns}).random(generator);
  };
  const auto x = tensor(all_rows, in), residual = tensor(all_rows, out), xa = tensor(all_rows, rank),
             b = tensor(out, rank);
  const auto dense = TestTensor<Exec, float>({out, in}, Rows::packed).random(generator);
  for (const QuantizedFormat format : quantized_formats) {
    const Kokkos::View<std::byte*, Exec::memory_space> blocks("kformer::Testing::blocks",
                                                              quantized_bytes(format, out, in));
    const QuantizedOutput weight{format, blocks.data(), out, in};
    quantize(Exec(), dense.template view<2>(), weight);
    const auto check = [&](Activations activations, bool adapted, bool adds) {
      check_rows<T>(out, [&](RowSpan s, const TestTensor<Exec, T>& y) {
        const auto rows = [&](const TestTensor<Exec, T>& t) {
          return Impl::rows_of(t.ref(), s.first, s.count);
        };
        return Impl::QuantizedLinearForward{
            rows(x),
            weight,
            adds ? rows(residual) : TensorRef{},
            y.ref(),
            {.activations = activations, .batch_invariant = true},
            adapted ? Impl::AdapterTerms{rows(xa), b.ref()} : Impl::AdapterTerms{}};
      });
    };
    BOOST_TEST_CONTEXT(name_of(format)) {
      check(Activations::full, false, false);
      check(Activations::full, true, false);
      check(Activations::full, true, true);
    }
    if (has_integer_codes(format))
      BOOST_TEST_CONTEXT(name_of(format) << ", activations int8") check(Activations::int8, false, false);
  }
}

// Chunks of one row, of all rows, and what lies between.
BOOST_AUTO_TEST_CASE_TEMPLATE(losses, T, Scalars) {
  using C = compute_t<T>;
  const Factors<T> f;
  TestTensor<Exec, std::int32_t> targets({all_rows}, Rows::packed);
  targets.fill([&](std::size_t i) { return static_cast<std::int32_t>(7 * i % f.out); });
  const auto losses = [&](std::int64_t chunk, bool invariant) {
    const LinearCrossEntropyOptions options{.chunk_rows = chunk, .batch_invariant = invariant};
    TestTensor<Exec, C> loss({all_rows}, Rows::packed);
    const Kokkos::View<std::byte*, Exec::memory_space> memory(
        "kformer::Testing::workspace",
        linear_cross_entropy_workspace_bytes<T>(Exec(), all_rows, f.out, options));
    linear_cross_entropy(Exec(), f.x.template view<2>(), f.weight.template view<2>(),
                         targets.template view<1>(), loss.template view<1>(), options, memory);
    Exec().fence("kformer::Testing::losses");
    return loss.template read<double>().values();
  };
  const auto expected = losses(all_rows, true);
  for (const std::int64_t chunk : {1, 5, 32, 33, 128})
    BOOST_TEST((losses(chunk, true) == expected), "chunks of " << chunk << " rows");
}

/// Attention of a batch, and the parts that a cache would compute.
struct AttentionCase {
  std::int64_t heads, kv_heads, head_dim, window;
  double softcap;
};
const std::vector<AttentionCase> attention_cases{
    {6, 2, 64, 0, 0}, {4, 4, 40, 0, 0}, {8, 1, 16, 0, 30}, {6, 3, 64, 50, 0}, {2, 1, 128, 130, 0}};

template <class T>
void check_attention(const AttentionCase& c) {
  constexpr std::int64_t seq = all_rows;
  std::mt19937 generator(11);
  const auto tensor = [&](std::int64_t heads) {
    return TestTensor<Exec, T>({1, seq, heads, c.head_dim}).random(generator);
  };
  const auto q = tensor(c.heads), k = tensor(c.kv_heads), v = tensor(c.kv_heads);
  const AttentionOptions options{
      .causal = true, .window = c.window, .softcap = c.softcap, .batch_invariant = true};
  // Tokens [begin, end) of a sequence that starts at token `start`.
  const auto tokens = [](const TestTensor<Exec, T>& t, std::int64_t begin, std::int64_t end) {
    TensorRef ref = t.ref();
    ref.data = static_cast<T*>(ref.data) + begin * ref.stride[1];
    ref.extent[1] = end - begin;
    return ref;
  };
  struct Outputs {
    TestTensor<Exec, T> out;
    TestTensor<Exec, compute_t<T>> lse;
    Outputs(const AttentionCase& c, std::int64_t rows)
        : out({1, rows, c.heads, c.head_dim}), lse({1, c.heads, rows}) {}
  };
  const auto problem = [&](std::int64_t start, RowSpan s, const Outputs& to) {
    return Impl::AttentionForward{tokens(q, start + s.first, start + s.first + s.count),
                                  tokens(k, start, start + s.first + s.count),
                                  tokens(v, start, start + s.first + s.count),
                                  to.out.ref(),
                                  to.lse.ref(),
                                  options,
                                  {}};
  };
  bool ran = false;
  for (const auto& kernel : kernels<Impl::AttentionForward, Exec>()) {
    const auto run = [&](const Impl::AttentionForward& p) {
      p.check();
      BOOST_TEST_REQUIRE(kernel.reject(p).empty(), kernel.name << " accepts all queries, but refuses some");
      kernel.run(Exec(), p, {});
      Exec().fence("kformer::Testing::batch_invariance");
    };
    for (const std::int64_t start : {0, 37}) {
      const std::int64_t rows = seq - start;
      const Outputs all(c, rows);
      const auto whole = problem(start, {0, rows}, all);
      if (!kernel.reject(whole).empty()) continue;
      ran = true;
      run(whole);
      const auto expected = all.out.template read<double>();
      const auto expected_lse = all.lse.template read<double>();
      for (const RowSpan& part : parts) {
        if (part.first + part.count > rows) continue;
        const Outputs some(c, part.count);
        run(problem(start, part, some));
        const auto found = some.out.template read<double>();
        const auto lse = some.lse.template read<double>();
        std::int64_t different = 0;
        for (std::int64_t r = 0; r < part.count; ++r)
          for (std::int64_t h = 0; h < c.heads; ++h) {
            different += lse(0, h, r) != expected_lse(0, h, part.first + r);
            for (std::int64_t d = 0; d < c.head_dim; ++d)
              different += found(0, r, h, d) != expected(0, part.first + r, h, d);
          }
        BOOST_TEST(different == 0, kernel.name << ", " << c.heads << " heads of " << c.head_dim << ", window "
                                               << c.window << ": " << different << " numbers differ in queries "
                                               << part.first << " to " << part.first + part.count);
      }
    }
  }
  BOOST_TEST(ran, "no kernel is batch-invariant");
}

BOOST_AUTO_TEST_CASE_TEMPLATE(attention, T, Scalars) {
  for (const AttentionCase& c : attention_cases) check_attention<T>(c);
}

// What sums a row in an order that depends on the number of rows must say so.
BOOST_AUTO_TEST_CASE(refusals) {
  const Factors<float> f;
  const TestTensor<Exec, float> y({all_rows, f.out}, Rows::packed);
  Impl::LinearForward linear{f.x.ref(), f.weight.ref(), {}, {}, y.ref(), {}};
  for (const auto& kernel : kernels<Impl::LinearForward, Exec>()) {
    linear.options.batch_invariant = true;
    const std::string_view name = kernel.name;
    if (name == "host_blas" || name == "kokkos_blas" || name == "cublaslt")
      BOOST_TEST(!kernel.reject(linear).empty(), name);
  }
  const TestTensor<Exec, float> q({1, 1, 4, 16}), k({1, 50, 2, 16}), lse({1, 4, 1});
  const Impl::AttentionForward decode{q.ref(), k.ref(), k.ref(), q.ref(), lse.ref(), {.batch_invariant = true},
                                      {}};
  for (const auto& kernel : kernels<Impl::AttentionForward, Exec>())
    if (std::string_view(kernel.name).find("decode") != std::string_view::npos)
      BOOST_TEST(!kernel.reject(decode).empty(), kernel.name);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kformer::Testing
