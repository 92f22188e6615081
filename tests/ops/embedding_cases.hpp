// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/embedding.hpp"
#include "ops/embedding/reference.hpp"
#include "support/every_kernel.hpp"

/// \file
/// Embeddings for tests, with the check of their gradient. `test(problem, outputs, verify)` runs the kernels in
/// question, as `test_every_kernel` does.

namespace kformer::Testing::embedding_cases {
namespace ref = kformer::Impl::reference;

struct Shape {
  std::int64_t rows, vocabulary, hidden;
};

template <class T>
struct Tensors {
  TestTensor<Exec, std::int32_t> ids;
  TestTensor<Exec, T> weight, y, dy;
  TestTensor<Exec, compute_t<T>> dweight;

  explicit Tensors(Shape s, unsigned seed = 20260105, Rows rows = Rows::strided) {
    std::mt19937 generator(seed);
    ids = TestTensor<Exec, std::int32_t>({s.rows});
    // One id beyond the vocabulary either way.
    std::uniform_int_distribution<std::int32_t> any(-1, static_cast<std::int32_t>(s.vocabulary));
    ids.fill([&](std::size_t) { return any(generator); });
    weight = TestTensor<Exec, T>({s.vocabulary, s.hidden}, rows).random(generator);
    y = TestTensor<Exec, T>({s.rows, s.hidden}, rows);
    dy = TestTensor<Exec, T>({s.rows, s.hidden}, rows).random(generator);
    dweight = TestTensor<Exec, compute_t<T>>({s.vocabulary, s.hidden}, rows).random(generator);
  }
};

template <class T, class Test>
void test_backward(Tensors<T> t, Test test) {
  using Real = naive_t<T>;
  const auto naive = ref::embedding_backward(t.ids.template read<Real>(), t.dy.template read<Real>(),
                                             t.dweight.template read<Real>());
  test(Impl::EmbeddingBackward{t.ids.ref(), t.dy.ref(), t.dweight.ref()}, std::vector<Output*>{&t.dweight},
       [&](const std::string&) { check_close("dweight", t.dweight, naive); });
}

}  // namespace kformer::Testing::embedding_cases
