// SPDX-License-Identifier: MIT
// What CUDA kernels refuse of operands that they could not read or number: each operand that is read 16 bytes at a
// time, and the extents that 32 bits no longer count. No operand has memory of its own.
#include <utility>

#include "ops/adamw/cuda/entries.hpp"
#include "ops/attention/cuda/entries.hpp"
#include "ops/cross_entropy/cuda/entries.hpp"
#include "ops/dense_ref.hpp"
#include "ops/embedding/cuda/entries.hpp"
#include "ops/linear/cuda/dot_entries.hpp"
#include "ops/quantized/cuda/entries.hpp"
#include "ops/rms_norm/cuda/entries.hpp"
#include "ops/rope/cuda/entries.hpp"
#include "ops/swiglu/cuda/entries.hpp"
#include "support/every_kernel.hpp"

namespace kformer::Testing {
namespace {

namespace cuda = Impl::cuda;
using Impl::AttentionBackward, Impl::AttentionForward;

TensorRef aligned(const std::vector<std::int64_t>& extents, DType dtype = DType::bf16) {
  alignas(64) static std::byte memory[64];
  return dense(extents, dtype, memory);
}

template <class P>
using Role = std::pair<const char*, TensorRef P::*>;

/// Each of the operands must begin at a multiple of 16 bytes, and so must each of its rows.
template <class P>
void check_alignment(const Kernel<P, Exec>& kernel, const P& problem, const std::vector<Role<P>>& operands) {
  BOOST_TEST(kernel.reject(problem) == "");
  for (const auto& [role, operand] : operands) {
    P shifted = problem;
    TensorRef& x = shifted.*operand;
    x.data = static_cast<std::byte*>(x.data) + size_of(x.dtype);
    BOOST_TEST(kernel.reject(shifted) == std::string(role) + " is not aligned to 16 bytes");
    for (int r = 0; r + 1 < x.rank; ++r) {
      P strided = problem;
      ++(strided.*operand).stride[r];
      BOOST_TEST(kernel.reject(strided).starts_with(std::string(role) + " has a stride of "),
                 role << ", extent " << r << ": " << kernel.reject(strided));
    }
  }
}

AttentionForward forward_of(const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& k,
                            DType dtype = DType::bf16) {
  return {aligned(q, dtype),
          aligned(k, dtype),
          aligned(k, dtype),
          aligned(q, dtype),
          aligned({q[0], q[2], q[1]}, DType::f32),
          {},
          {}};
}
AttentionBackward backward_of(const std::vector<std::int64_t>& q, const std::vector<std::int64_t>& k,
                              DType dtype = DType::bf16) {
  const AttentionForward p = forward_of(q, k, dtype);
  return {p.q, p.k, p.v, p.out, p.lse, p.out, p.q, p.k, p.v, {}, {}, {}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(operand_refusals)

BOOST_AUTO_TEST_CASE(operands_of_attention_are_aligned) {
  using F = AttentionForward;
  const std::vector<Role<F>> forward{{"q", &F::q}, {"k", &F::k}, {"v", &F::v}, {"out", &F::out}};
  const std::vector<std::int64_t> q{2, 3, 4, 64}, k{2, 5, 2, 64};
  for (const auto& kernel : {cuda::ForwardEntry<Exec>::entry(), cuda::DecodeEntry<Exec>::entry(),
                             cuda::WarpgroupForwardEntry<Exec>::entry()})
    check_alignment(kernel, forward_of(q, k), forward);
  check_alignment(cuda::FloatForwardEntry<Exec>::entry(), forward_of(q, k, DType::f32), forward);
  using B = AttentionBackward;
  const std::vector<Role<B>> backward{{"q", &B::q},       {"k", &B::k},   {"v", &B::v},   {"out", &B::out},
                                      {"dout", &B::dout}, {"dq", &B::dq}, {"dk", &B::dk}, {"dv", &B::dv}};
  for (const auto& kernel : {cuda::BackwardEntry<Exec>::entry(), cuda::WarpgroupBackwardEntry<Exec>::entry()})
    check_alignment(kernel, backward_of(q, k), backward);
  check_alignment(cuda::FloatBackwardEntry<Exec>::entry(), backward_of(q, k, DType::f32), backward);
}

// Broadcast tokens, and strides of which the descriptors of tile copies have no number.
BOOST_AUTO_TEST_CASE(tiles_are_copied_by_strides_that_copies_support) {
  const auto check = [](const auto& kernel, const auto& problem, const auto& copied) {
    for (const auto& [role, operand] : copied) {
      auto changed = problem;
      (changed.*operand).stride[1] = 0;
      BOOST_TEST(kernel.reject(changed) ==
                 std::string(role) + " has a stride of 0 elements, which tile copies do not support");
      changed = problem;
      (changed.*operand).stride[0] = (std::int64_t(1) << 39) - 8;
      BOOST_TEST(kernel.reject(changed) == "");
      (changed.*operand).stride[0] += 8;
      BOOST_TEST(kernel.reject(changed) ==
                 std::string(role) +
                     " has a stride of 549755813888 elements, which tile copies do not support");
    }
  };
  const std::vector<std::int64_t> q{2, 3, 4, 64}, k{2, 5, 2, 64};
  using F = AttentionForward;
  check(cuda::WarpgroupForwardEntry<Exec>::entry(), forward_of(q, k),
        std::vector<Role<F>>{{"q", &F::q}, {"k", &F::k}, {"v", &F::v}});
  using B = AttentionBackward;
  check(cuda::WarpgroupBackwardEntry<Exec>::entry(), backward_of(q, k),
        std::vector<Role<B>>{{"q", &B::q}, {"k", &B::k}, {"v", &B::v}, {"dout", &B::dout}});
}

BOOST_AUTO_TEST_CASE(operands_of_vector_kernels_are_aligned) {
  const TensorRef x = aligned({3, 16}), row = aligned({16}), statistic = aligned({3}, DType::f32),
                  ids = aligned({3}, DType::i32);
  using SF = Impl::SwigluForward;
  check_alignment(cuda::SwigluForwardEntry<Exec>::entry(), SF{x, x, x},
                  {{"gate", &SF::gate}, {"up", &SF::up}, {"y", &SF::y}});
  using SB = Impl::SwigluBackward;
  check_alignment(
      cuda::SwigluBackwardEntry<Exec>::entry(), SB{x, x, x, x, x},
      {{"gate", &SB::gate}, {"up", &SB::up}, {"dy", &SB::dy}, {"dgate", &SB::dgate}, {"dup", &SB::dup}});
  using NF = Impl::RmsNormForward;
  check_alignment(
      cuda::RmsNormForwardEntry<Exec>::entry(), NF{x, x, row, x, x, statistic, 1e-5},
      {{"x", &NF::x}, {"residual", &NF::residual}, {"weight", &NF::weight}, {"sum", &NF::sum}, {"y", &NF::y}});
  using NB = Impl::RmsNormBackward;
  check_alignment(cuda::RmsNormBackwardEntry<Exec>::entry(),
                  NB{x, row, statistic, x, x, x, aligned({16}, DType::f32)},
                  {{"x", &NB::x},
                   {"weight", &NB::weight},
                   {"dy", &NB::dy},
                   {"dsum", &NB::dsum},
                   {"dx", &NB::dx},
                   {"dweight", &NB::dweight}});
  const TensorRef q = aligned({2, 3, 4, 32}), k = aligned({2, 3, 2, 32}), table = aligned({9, 16}, DType::f32);
  const auto check_rotation = [&]<class R>(const Kernel<R, Exec>& kernel) {
    check_alignment(kernel, R{{q, k, table, table, {}, 0, RopeLayout::half_split}},
                    {{"q", &R::q}, {"k", &R::k}, {"cos", &R::cos}, {"sin", &R::sin}});
  };
  check_rotation(cuda::RopeRotationEntry<Impl::RopeForward, Exec, +1>::entry());
  check_rotation(cuda::RopeRotationEntry<Impl::RopeBackward, Exec, -1>::entry());
  using E = Impl::EmbeddingBackward;
  check_alignment(cuda::EmbeddingBackwardEntry<Exec>::entry(), E{ids, x, aligned({9, 16}, DType::f32)},
                  {{"dy", &E::dy}, {"dweight", &E::dweight}});
  using L = Impl::LinearForward;
  check_alignment(cuda::LinearDotEntry<Exec>::entry(), L{x, aligned({5, 16}), {}, {}, aligned({3, 5})},
                  {{"x", &L::x}, {"weight", &L::weight}});
  using Q = Impl::QuantizedLinearForward;
  const TensorRef inputs = aligned({3, 64});
  check_alignment(
      cuda::QuantizedLinearEntry<Exec>::entry(),
      Q{inputs, {QuantizedFormat::q8_0, static_cast<std::byte*>(inputs.data), 5, 64}, {}, aligned({3, 5})},
      {{"x", &Q::x}});
}

constexpr std::int64_t most = std::int64_t(1) << 30;

BOOST_AUTO_TEST_CASE(lengths_of_attention_fit_into_32_bits) {
  const auto why = [](const AttentionForward& p) { return cuda::ForwardEntry<Exec>::reject(p); };
  const std::string lengths = "lengths exceed 32 bits";
  BOOST_TEST(why(forward_of({1, most, 1, 8}, {1, most, 1, 8})) == "");
  BOOST_TEST(why(forward_of({1, 1, 1, 8}, {1, most + 1, 1, 8})) == lengths);
  BOOST_TEST(why(forward_of({1, most + 1, 1, 8}, {1, 1, 1, 8})) == lengths);
  // Tiles of all sequences and heads are numbered.
  BOOST_TEST(why(forward_of({2, most / 8, 4, 8}, {2, 1, 4, 8})) == "");
  BOOST_TEST(why(forward_of({3, most / 8, 4, 8}, {3, 1, 4, 8})) == lengths);
  BOOST_TEST(why(forward_of({2, most / 8, 8, 8}, {2, 1, 8, 8})) == lengths);
  // Sequences may be further apart than tokens and heads.
  for (const int extent : {0, 1, 2}) {
    AttentionForward p = forward_of({2, 3, 4, 8}, {2, 5, 2, 8});
    p.v.stride[extent] = most;
    BOOST_TEST(why(p) == "");
    p.v.stride[extent] += 8;
    BOOST_TEST(why(p) == (extent == 0 ? "" : "v has a stride that exceeds 32 bits"));
  }
}

BOOST_AUTO_TEST_CASE(work_is_numbered_with_32_bits) {
  const std::string pieces = "it would have 1073741825 pieces of work, more than 2^30",
                    extents = "extents exceed 32 bits";
  const auto swiglu = [](std::int64_t rows) {
    const TensorRef x = aligned({rows, 8});
    return cuda::SwigluForwardEntry<Exec>::reject({x, x, x});
  };
  BOOST_TEST(swiglu(most) == "");
  BOOST_TEST(swiglu(most + 1) == pieces);
  const auto norm = [](std::int64_t rows) {
    const TensorRef x = aligned({rows, 8});
    return cuda::RmsNormForwardEntry<Exec>::reject(
        {x, {}, aligned({8}), {}, x, aligned({rows}, DType::f32), 1e-5});
  };
  BOOST_TEST(norm(most) == "");
  BOOST_TEST(norm(most + 1) == pieces);
  const auto linear = [](std::int64_t out) {
    return cuda::LinearDotEntry<Exec>::reject({aligned({1, 8}), aligned({out, 8}), {}, {}, aligned({1, out})});
  };
  BOOST_TEST(linear(most) == "");
  BOOST_TEST(linear(most + 1) == pieces);
  const auto loss = [](std::int64_t rows, std::int64_t vocabulary) {
    const TensorRef row = aligned({rows}, DType::f32);
    return cuda::CrossEntropyForwardEntry<Exec>::reject(
        {aligned({rows, vocabulary}), aligned({rows}, DType::i32), row, row, {}});
  };
  BOOST_TEST(loss(2 * most - 1, most) == "");
  BOOST_TEST(loss(2 * most, 8) == extents);
  BOOST_TEST(loss(1, most + 1) == extents);
  const auto step = [](std::int64_t size) {
    AdamWParameter p;
    p.gradient = aligned({size}, DType::f32);
    return cuda::AdamWEntry<Exec>::reject({{&p, 1}, {}, {}});
  };
  const std::int64_t all = (2 * most - 1) * Impl::adamw_piece;
  BOOST_TEST(step(all) == "");
  BOOST_TEST(step(all + 1) == "it numbers pieces with 32 bits");
}

BOOST_AUTO_TEST_CASE(options_that_a_kernel_cannot_honour_are_refused) {
  const auto check = [](const auto& kernel, const AttentionForward& problem) {
    AttentionForward p = problem;
    p.options.batch_invariant = true;
    BOOST_TEST(kernel.reject(p).ends_with("but batch_invariant was requested"), kernel.name);
    p = problem;
    p.options.compute = Precision::full;
    BOOST_TEST(kernel.reject(p).ends_with("but compute = full was requested"), kernel.name);
    p = problem;
    p.options.scale = -1;
    BOOST_TEST(kernel.reject(p) == "the scale is not positive", kernel.name);
  };
  const std::vector<std::int64_t> q{2, 3, 4, 64}, k{2, 5, 2, 64};
  for (const auto& kernel : {cuda::ForwardEntry<Exec>::entry(), cuda::DecodeEntry<Exec>::entry(),
                             cuda::WarpgroupForwardEntry<Exec>::entry()})
    check(kernel, forward_of(q, k));
  check(cuda::FloatForwardEntry<Exec>::entry(), forward_of(q, k, DType::f32));
}

BOOST_AUTO_TEST_CASE(heads_of_tokens_are_not_rows) {
  const TensorRef heads = aligned({3, 2, 16}), row = aligned({16}), statistic = aligned({3, 2}, DType::f32);
  const std::string why = "it takes the rows of a matrix, not the heads of tokens";
  BOOST_TEST(cuda::RmsNormForwardEntry<Exec>::reject({heads, {}, row, {}, heads, statistic, 1e-5}) == why);
  BOOST_TEST(cuda::RmsNormBackwardEntry<Exec>::reject(
                 {heads, row, statistic, heads, {}, heads, aligned({16}, DType::f32)}) == why);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
