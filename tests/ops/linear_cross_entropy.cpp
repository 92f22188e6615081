// SPDX-License-Identifier: MIT
#include "kformer/ops/linear_cross_entropy.hpp"

#include "support/draws.hpp"
#include "support/errors.hpp"
#include "support/every_kernel.hpp"
#include "support/gradient_check.hpp"
#include "support/references.hpp"

namespace kformer::Testing {
namespace ref = kformer::Impl::reference;

BOOST_AUTO_TEST_SUITE(linear_cross_entropy)

struct Shape {
  std::int64_t rows, hidden, vocabulary;
};
const std::vector<Shape> shapes{{40, 24, 33}, {75, 17, 130}, {30, 5, 1025}, {0, 4, 6}};
/// Chosen, one row, an odd number that divides no shape's rows, more than there are.
const std::vector<std::int64_t> chunk_sizes{0, 1, 7, 1000};
const CrossEntropyOptions every_option{.label_smoothing = 0.25, .z_loss = 1e-2, .softcap = 30};

template <class T>
struct Tensors {
  TestTensor<Exec, T> x, weight, dx;
  TestTensor<Exec, std::int32_t> targets;
  TestTensor<Exec, compute_t<T>> loss, dloss, dweight;
  LinearCrossEntropyOptions options;

  explicit Tensors(Shape s, const LinearCrossEntropyOptions& with = {}, unsigned seed = 20261121)
      : options(with) {
    std::mt19937 generator(seed);
    x = TestTensor<Exec, T>({s.rows, s.hidden}).random(generator);
    // Logits of a few units, whatever the hidden size.
    const double scale = 2 / std::sqrt(static_cast<double>(s.hidden));
    weight = TestTensor<Exec, T>({s.vocabulary, s.hidden}).random(generator, scale);
    dx = TestTensor<Exec, T>({s.rows, s.hidden});
    targets = TestTensor<Exec, std::int32_t>({s.rows});
    std::uniform_int_distribution<std::int32_t> any(0, static_cast<std::int32_t>(s.vocabulary) - 1);
    targets.fill(
        [&](std::size_t i) { return i % 4 == 3 ? options.cross_entropy.ignore_index : any(generator); });
    using C = compute_t<T>;
    loss = TestTensor<Exec, C>({s.rows});
    dloss = TestTensor<Exec, C>({s.rows}).random(generator);
    dweight = TestTensor<Exec, C>({s.vocabulary, s.hidden}).random(generator);
  }

  std::int64_t rows() const { return x.ref().extent[0]; }
  std::int64_t vocabulary() const { return weight.ref().extent[0]; }
  std::size_t workspace_bytes() const {
    return linear_cross_entropy_workspace_bytes<T>(Exec(), rows(), vocabulary(), options);
  }

  /// Calls `f` with a workspace of `bytes`, full of NaN, and checks that nothing outside it was written.
  template <class F>
  static void with_workspace(std::size_t bytes, F f) {
    using Bytes =
        Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
    const TestTensor<Exec, double> memory({static_cast<std::int64_t>(bytes + 7) / 8}, Rows::packed);
    f(Bytes(static_cast<std::byte*>(memory.ref().data), bytes));
    Exec().fence("kformer::Testing::linear_cross_entropy");
    BOOST_TEST(memory.guards_intact(), "wrote outside its workspace");
  }
  void loss_alone() const {
    with_workspace(workspace_bytes(), [&](const auto& workspace) {
      kformer::linear_cross_entropy(Exec(), x.template view<2>(), weight.template view<2>(),
                                    targets.template view<1>(), loss.template view<1>(), options, workspace);
    });
  }
  void run() const { run_into(dx, workspace_bytes()); }
  void run_into(const TestTensor<Exec, T>& to, std::size_t bytes) const {
    with_workspace(bytes, [&](const auto& workspace) {
      kformer::linear_cross_entropy(Exec(),
                                    kformer::LinearCrossEntropyOperands{.x = x.template view<2>(),
                                                                        .weight = weight.template view<2>(),
                                                                        .targets = targets.template view<1>(),
                                                                        .dloss = dloss.template view<1>(),
                                                                        .loss = loss.template view<1>(),
                                                                        .dx = to.template view<2>(),
                                                                        .dweight = dweight.template view<2>()},
                                    options, workspace);
    });
  }
};

template <class Real>
struct Expected {
  HostTensor<Real> loss, dx, dweight;
};

/// The rows [begin, end).
template <class Real>
HostTensor<Real> part_of(const HostTensor<Real>& x, std::int64_t begin, std::int64_t end) {
  HostTensor<Real> part =
      x.rank() == 1 ? HostTensor<Real>({end - begin}) : HostTensor<Real>({end - begin, x.extent(1)});
  const std::int64_t row = x.rank() == 1 ? 1 : x.extent(1);
  std::copy(x.values().begin() + begin * row, x.values().begin() + end * row, part.values().begin());
  return part;
}

/// The references of the parts, chunk by chunk: the sum in `dweight` is rounded once per chunk. `dweight`
/// is still what it was before the call.
template <class Real, class Store, class T>
Expected<Real> composed(const Tensors<T>& t, std::int64_t chunk_rows) {
  const auto x = t.x.template read<Real>(), weight = t.weight.template read<Real>();
  const auto targets = t.targets.template read<Real>(), dloss = t.dloss.template read<Real>();
  const CrossEntropyOptions& options = t.options.cross_entropy;
  Expected<Real> e{HostTensor<Real>({x.extent(0)}), HostTensor<Real>({x.extent(0), x.extent(1)}),
                   t.dweight.template read<Real>()};
  for (std::int64_t begin = 0; begin < x.extent(0); begin += chunk_rows) {
    const std::int64_t end = std::min(x.extent(0), begin + chunk_rows);
    const auto rows = part_of(x, begin, end), chosen = part_of(targets, begin, end);
    const auto logits = ref::linear_forward<Real, Store>(rows, weight, {}, {});
    const auto r = ref::cross_entropy_forward<Real>(logits, chosen, options);
    const auto dlogits =
        ref::cross_entropy_backward<Real, Store>(logits, chosen, r.lse, part_of(dloss, begin, end), options);
    const auto dx = ref::linear_backward_input<Real, Store>(weight, dlogits);
    const auto dweight = ref::linear_backward_weight(rows, dlogits);
    std::copy(r.loss.values().begin(), r.loss.values().end(), e.loss.values().begin() + begin);
    std::copy(dx.values().begin(), dx.values().end(), e.dx.values().begin() + begin * x.extent(1));
    for (std::size_t i = 0; i < dweight.values().size(); ++i) e.dweight.values()[i] += dweight.values()[i];
  }
  return e;
}

/// Runs with chunks of each size and holds the results against the composed references.
template <class T>
void check_chunks(Tensors<T>& t, const std::vector<std::int64_t>& sizes) {
  const std::vector<Output*> outputs{&t.loss, &t.dx, &t.dweight};
  const auto expected = composed<oracle_t<T>, oracle_t<T>>(t, t.rows());
  for (const std::int64_t chunk_rows : sizes)
    BOOST_TEST_CONTEXT(t.rows() << " rows, " << t.vocabulary() << " words, chunks of " << chunk_rows
                                << ", soft cap " << t.options.cross_entropy.softcap) {
      t.options.chunk_rows = chunk_rows;
      const auto naive = composed<naive_t<T>, T>(t, chunk_rows > 0 ? chunk_rows : t.rows());
      for (Output* output : outputs) output->reset();
      t.run();
      check_close("loss", t.loss, expected.loss, naive.loss);
      check_close("dx", t.dx, expected.dx, naive.dx);
      check_close("dweight", t.dweight, expected.dweight, naive.dweight);
      for (const Output* output : outputs) BOOST_TEST(output->guards_intact());
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(any_chunks_match_the_composed_oracle, T, Scalars) {
  for (const Shape& shape : shapes)
    for (const CrossEntropyOptions& loss : {CrossEntropyOptions{}, every_option}) {
      Tensors<T> t(shape, {.cross_entropy = loss});
      check_chunks(t, chunk_sizes);
    }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(no_kernel_is_rejected, T, Scalars) {
  judge_draws<T>([](Draw& draw) {
    const CrossEntropyOptions loss = draw.one_in(2) ? every_option : CrossEntropyOptions{};
    Tensors<T> t({draw.any(1, 40), draw.any(1, 60), draw.any(2, 150)}, {.cross_entropy = loss}, draw.seed());
    check_chunks(t, {draw.any(0, t.rows())});
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(the_loss_alone_has_the_same_bits, T, Scalars) {
  const LinearCrossEntropyOptions options{.cross_entropy = every_option, .chunk_rows = 7};
  const Tensors<T> t({40, 24, 33}, options), alone({40, 24, 33}, options);
  t.run();
  alone.loss_alone();
  BOOST_TEST((alone.loss.bits() == t.loss.bits()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(dx_may_be_x, T, Scalars) {
  const LinearCrossEntropyOptions options{.chunk_rows = 7};
  const Tensors<T> apart({40, 24, 33}, options), t({40, 24, 33}, options);
  apart.run();
  t.run_into(t.x, t.workspace_bytes());
  BOOST_TEST((t.x.bits() == apart.dx.bits()));
  BOOST_TEST((t.dweight.bits() == apart.dweight.bits()));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_frozen_weight_changes_no_bit_of_dx, T, Scalars) {
  for (const Shape s : shapes) {
    const Tensors<T> t(s, {.chunk_rows = 7});
    Tensors<T> frozen(s, {.chunk_rows = 7});
    frozen.dweight = TestTensor<Exec, compute_t<T>>({0, s.hidden});
    t.run();
    frozen.run();
    BOOST_TEST((frozen.dx.bits() == t.dx.bits()));
    BOOST_TEST((frozen.loss.bits() == t.loss.bits()));
  }
}

BOOST_AUTO_TEST_CASE_TEMPLATE(one_chunk_is_the_unfused_form, T, Scalars) {
  const Tensors<T> fused({40, 24, 32}, {.chunk_rows = 40}), t({40, 24, 32});
  fused.run();
  const TestTensor<Exec, T> logits({40, 32}, Rows::packed);
  const TestTensor<Exec, compute_t<T>> lse({40});
  const auto x = t.x.template view<2>(), weight = t.weight.template view<2>();
  const auto z = logits.template view<2>();
  const auto targets = t.targets.template view<1>();
  linear_forward(Exec(), x, weight, z);
  cross_entropy_forward(Exec(), z, targets, t.loss.template view<1>(), lse.template view<1>());
  cross_entropy_backward(Exec(), z, targets, lse.template view<1>(), t.dloss.template view<1>(), z);
  linear_backward(Exec(), x, weight, z, t.dx.template view<2>(), t.dweight.template view<2>());
  Exec().fence("kformer::Testing::linear_cross_entropy");
  BOOST_TEST((fused.loss.bits() == t.loss.bits()));
  BOOST_TEST((fused.dx.bits() == t.dx.bits()));
  BOOST_TEST((fused.dweight.bits() == t.dweight.bits()));
}

BOOST_AUTO_TEST_CASE(gradients_agree_with_finite_differences) {
  Tensors<double> t({10, 6, 7}, {.cross_entropy = every_option, .chunk_rows = 3});
  t.dweight.fill([](std::size_t) { return 0; });
  t.run();
  std::mt19937 generator(7);
  const auto dloss = t.dloss.read<double>().values();
  const auto loss = [&] {
    t.loss_alone();
    return dot(t.loss.read<double>().values(), dloss);
  };
  check_gradient_of("x", t.x, t.dx, generator, loss);
  check_gradient_of("weight", t.weight, t.dweight, generator, loss);
}

// One chunk's logits and lse, rounded up to the 64 bytes that a workspace is aligned to, and what products need.
BOOST_AUTO_TEST_CASE(workspace_grows_with_the_chunk_alone) {
  const auto bytes = [](std::int64_t rows, std::int64_t chunk_rows) {
    return linear_cross_entropy_workspace_bytes<float>(Exec(), rows, 32000, {.chunk_rows = chunk_rows}) -
           Impl::product_workspace_bytes<Exec>();
  };
  const auto rows_of = [](std::size_t rows) {
    constexpr std::size_t row = 32000 * sizeof(float) + sizeof(float);
    return (rows * row + 63) / 64 * 64;
  };
  BOOST_TEST(bytes(4096, 100) == rows_of(100));
  BOOST_TEST(bytes(1 << 20, 100) == rows_of(100));
  BOOST_TEST(bytes(60, 100) == rows_of(60));
  const std::size_t most = Impl::is_host_space<Exec> ? 512 : 1024;
  BOOST_TEST(bytes(4096, 0) == rows_of(most));
  BOOST_TEST(bytes(static_cast<std::int64_t>(most) + 1, 0) == rows_of(most / 2 + 1));
  BOOST_TEST(bytes(0, 0) == 0u);
  // Rows of 16 bytes, of which 10 and 12 hold logits, and as many lse of 4 bytes.
  const auto products = Impl::product_workspace_bytes<Exec>();
  BOOST_TEST(linear_cross_entropy_workspace_bytes<bf16>(Exec(), 3, 5, {}) == 64 + products);
  BOOST_TEST(linear_cross_entropy_workspace_bytes<bf16>(Exec(), 4, 5, {}) == 128 + products);
  BOOST_TEST(linear_cross_entropy_workspace_bytes<float>(Exec(), 4, 3, {}) == 128 + products);
}

BOOST_AUTO_TEST_CASE(errors_name_operands_and_expectation) {
  const auto text = [](const std::string& what) { return "kformer::linear_cross_entropy: " + what; };
  Tensors<bf16> t({3, 5, 7});
  check_error<DimensionMismatch>([&] { t.run_into(t.dx, 63); },
                                 text("the workspace has 63 bytes, 64 are needed; ask "
                                      "kformer::linear_cross_entropy_workspace_bytes: x[3,5] "
                                      "weight[7,5] targets[3] loss[3] dloss[3] dx[3,5] dweight[7,5]"));
  t.weight = TestTensor<Exec, bf16>({7, 4});
  check_error<DimensionMismatch>(
      [&] { t.loss_alone(); },
      text(
          "extents do not match: x[3,5] weight[7,4] targets[3] loss[3]; expected weight to have one column per "
          "column of x"));
  Tensors<float> u({3, 5, 7});
  u.loss = TestTensor<Exec, float>({4});
  check_error<DimensionMismatch>(
      [&] { u.loss_alone(); },
      text("extents do not match: x[3,5] weight[7,5] targets[3] loss[4]; expected targets and loss to have one "
           "element per row of x"));
  check_error<DimensionMismatch>(
      [&] { u.run(); },
      text(
          "extents do not match: x[3,5] weight[7,5] targets[3] loss[4] dloss[3] dx[3,5] dweight[7,5]; expected "
          "targets, loss and dloss to have one element per row of x"));
  Tensors<float> v({3, 5, 7});
  v.dweight = TestTensor<Exec, float>({5, 7});
  check_error<DimensionMismatch>(
      [&] { v.run(); },
      text(
          "extents do not match: x[3,5] weight[7,5] targets[3] loss[3] dloss[3] dx[3,5] dweight[5,7]; expected "
          "dx and dweight to have the extents of x and weight"));
  Tensors<float> w({3, 5, 7}, {.cross_entropy = {.softcap = -1}});
  check_error<NotSupported>([&] { w.run(); }, text("softcap must be finite and not negative, got -1.000000"));
  w.options = {.cross_entropy = {.softcap = std::numeric_limits<double>::infinity()}};
  check_error<NotSupported>([&] { w.run(); }, text("softcap must be finite and not negative, got inf"));
  w.options = {.chunk_rows = -2};
  check_error<NotSupported>([&] { w.run_into(w.dx, 1000); }, text("chunk_rows must not be negative, got -2"));
  check_error<NotSupported>([&] { w.workspace_bytes(); }, text("chunk_rows must not be negative, got -2"));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
