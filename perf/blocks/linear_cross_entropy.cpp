// SPDX-License-Identifier: MIT
#include "kformer/ops/linear_cross_entropy.hpp"

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  std::int64_t rows, hidden, vocabulary;
  std::int64_t chunk_rows = 0;  // 0: the library's choice
};

// The output matrix, the loss and the gradients of both.
template <class T>
class Operands {
 public:
  using C = compute_t<T>;
  Operands(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.hidden)),
        m_weight(random_array<T**>(exec, seed + 1, "kformer::perf::weight", s.vocabulary, s.hidden)),
        m_dx("kformer::perf::dx", s.rows, s.hidden),
        m_dweight("kformer::perf::dweight", s.vocabulary, s.hidden),
        m_targets(random_integers(exec, seed + 2, s.rows, s.vocabulary)),
        m_loss("kformer::perf::loss", s.rows),
        m_dloss(constant_array(C(1) / static_cast<C>(s.rows), "kformer::perf::dloss", s.rows)) {}

 protected:
  std::size_t operand_bytes() const { return bytes_of(m_x, m_weight, m_dx, m_dweight); }

  Array<T**> m_x, m_weight, m_dx;
  Array<C**> m_dweight;
  Array<std::int32_t*> m_targets;
  Array<C*> m_loss, m_dloss;
};

template <class T>
class Fused : Operands<T> {
 public:
  Fused(const Space& exec, std::uint64_t seed, const Shape& s)
      : Operands<T>(exec, seed, s),
        m_options{.chunk_rows = s.chunk_rows},
        m_workspace("kformer::perf::workspace",
                    linear_cross_entropy_workspace_bytes<T>(exec, s.rows, s.vocabulary, m_options)) {}
  std::size_t bytes() const { return this->operand_bytes() + bytes_of(m_workspace); }
  void launch(const Space& exec) const {
    linear_cross_entropy(exec,
                         LinearCrossEntropyOperands{.x = this->m_x,
                                                    .weight = this->m_weight,
                                                    .targets = this->m_targets,
                                                    .dloss = this->m_dloss,
                                                    .loss = this->m_loss,
                                                    .dx = this->m_dx,
                                                    .dweight = this->m_dweight},
                         m_options, m_workspace);
  }

 private:
  LinearCrossEntropyOptions m_options;
  Array<std::byte*> m_workspace;
};

// All logits in memory; their gradient takes their place.
template <class T>
class Unfused : Operands<T> {
 public:
  Unfused(const Space& exec, std::uint64_t seed, const Shape& s)
      : Operands<T>(exec, seed, s),
        m_logits("kformer::perf::logits", s.rows, s.vocabulary),
        m_lse("kformer::perf::lse", s.rows) {}
  std::size_t bytes() const { return this->operand_bytes() + bytes_of(m_logits); }
  void launch(const Space& exec) const {
    linear_forward(exec, this->m_x, this->m_weight, m_logits);
    cross_entropy_forward(exec, m_logits, this->m_targets, this->m_loss, m_lse);
    cross_entropy_backward(exec, m_logits, this->m_targets, m_lse, this->m_dloss, m_logits);
    linear_backward_weight(exec, this->m_x, m_logits, this->m_dweight);
    linear_backward_input(exec, this->m_weight, m_logits, this->m_dx);
  }

 private:
  Array<T**> m_logits;
  Array<compute_t<T>*> m_lse;
};

// Three products; the loss reads the logits, and their gradient reads and writes them.
template <template <class> class Call>
Case make_case(const char* block, DType dtype, const Shape& s) {
  return {.block = block,
          .direction = "forward_backward",
          .dtype = dtype,
          .tail = 'V' + std::to_string(s.vocabulary) +
                  (s.chunk_rows > 0 ? "/R" + std::to_string(s.chunk_rows) : ""),
          .limit = Limit::sum,
          .flops = 3 * 2 * static_cast<double>(s.rows) * static_cast<double>(s.hidden) *
                   static_cast<double>(s.vocabulary),
          .bytes = bytes_of_arrays(3, s.rows * s.vocabulary, dtype),
          .shape = {{"rows", s.rows},
                    {"hidden", s.hidden},
                    {"vocabulary", s.vocabulary},
                    {"chunk_rows", s.chunk_rows}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> linear_cross_entropy_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  const Shape shape{sizes.output_rows, sizes.models.front().config.hidden_size, sizes.output_vocabulary};
  const LlamaConfig& model = sizes.language_models.front().config;
  for (const DType dtype : sizes.dtypes) {
    cases.push_back(make_case<Fused>("linear_cross_entropy", dtype, shape));
    cases.push_back(make_case<Unfused>("linear_cross_entropy_unfused", dtype, shape));
    for (const std::int64_t chunk_rows : {128, 256, 512, 1024, 2048})
      cases.push_back(
          make_case<Fused>("linear_cross_entropy_chunks", dtype,
                           {sizes.batch * sizes.tokens, model.hidden_size, model.vocab_size, chunk_rows}));
  }
  return cases;
}

}  // namespace kformer::perf
