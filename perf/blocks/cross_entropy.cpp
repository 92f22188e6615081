// SPDX-License-Identifier: MIT
#include "kformer/ops/cross_entropy.hpp"

#include <algorithm>

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, vocabulary;
  bool backward;
};

template <class T>
class Call {
 public:
  Call(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_backward(s.backward),
        m_logits(random_array<T**>(exec, seed, "kformer::perf::logits", s.rows, s.vocabulary)),
        m_targets(random_integers(exec, seed + 1, s.rows, s.vocabulary)),
        m_loss("kformer::perf::loss", s.rows),
        m_lse("kformer::perf::lse", s.rows),
        m_dloss(constant_array(compute_t<T>(1) / static_cast<compute_t<T>>(s.rows), "kformer::perf::dloss",
                               s.rows)) {
    if (!m_backward) return;
    m_dlogits = Array<T**>("kformer::perf::dlogits", s.rows, s.vocabulary);
    forward(exec);
  }
  std::size_t bytes() const { return bytes_of(m_logits, m_dlogits); }
  void launch(const Space& exec) const {
    if (m_backward)
      cross_entropy_backward(exec, m_logits, m_targets, m_lse, m_dloss, m_dlogits);
    else
      forward(exec);
  }

 private:
  void forward(const Space& exec) const { cross_entropy_forward(exec, m_logits, m_targets, m_loss, m_lse); }

  bool m_backward;
  Array<T**> m_logits, m_dlogits;
  Array<std::int32_t*> m_targets;
  Array<compute_t<T>*> m_loss, m_lse, m_dloss;
};

Case make_case(DType dtype, const Shape& s) {
  return {.block = "cross_entropy",
          .direction = s.backward ? "backward" : "forward",
          .dtype = dtype,
          .tail = 'V' + std::to_string(s.vocabulary),
          .bytes = bytes_of_arrays(s.backward ? 2 : 1, s.rows * s.vocabulary, dtype),
          .written = bytes_of_arrays(s.backward ? 1 : 0, s.rows * s.vocabulary, dtype),
          .shape = {{"rows", s.rows}, {"vocabulary", s.vocabulary}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> cross_entropy_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const bool backward : {false, true}) {
    const auto add = [&](DType dtype, std::int64_t vocabulary) {
      const std::int64_t rows = std::max<std::int64_t>(1, sizes.logits / vocabulary);
      cases.push_back(make_case(dtype, {rows, vocabulary, backward}));
    };
    for (const DType dtype : sizes.dtypes)
      for (const std::int64_t vocabulary : sizes.vocabularies) add(dtype, vocabulary);
    for (const DType dtype : sizes.more_dtypes) add(dtype, sizes.vocabularies.front());
  }
  return cases;
}

}  // namespace kformer::perf
