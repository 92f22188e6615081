// SPDX-License-Identifier: MIT
#include "kformer/ops/rms_norm.hpp"

#include "blocks/block_cases.hpp"
#include "passes/passes.hpp"

namespace kformer::perf {

namespace {

// The norm alone, with the residual addition fused, and with the addition as a separate pass.
enum class Form { plain, residual, unfused };

struct Shape {
  std::int64_t rows, hidden;
  Form form;
};

template <class T>
class Forward {
 public:
  Forward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_form(s.form),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.hidden)),
        m_weight(random_array<T*>(exec, seed + 1, "kformer::perf::weight", s.hidden)),
        m_y("kformer::perf::y", s.rows, s.hidden),
        m_rstd("kformer::perf::rstd", s.rows) {
    if (m_form == Form::plain) return;
    m_residual = random_array<T**>(exec, seed + 2, "kformer::perf::residual", s.rows, s.hidden);
    m_sum = Array<T**>("kformer::perf::sum", s.rows, s.hidden);
  }
  std::size_t bytes() const { return bytes_of(m_x, m_y, m_residual, m_sum); }
  void launch(const Space& exec) const {
    if (m_form == Form::residual)
      return rms_norm_residual_forward(
          exec,
          RmsNormResidualForwardOperands{
              .x = m_x, .residual = m_residual, .weight = m_weight, .sum = m_sum, .y = m_y, .rstd = m_rstd});
    if (m_form == Form::unfused) add(exec, tensor_ref(m_x), tensor_ref(m_residual), tensor_ref(m_sum));
    rms_norm_forward(exec, m_form == Form::plain ? m_x : m_sum, m_weight, m_y, m_rstd);
  }

 private:
  Form m_form;
  Array<T**> m_x;
  Array<T*> m_weight;
  Array<T**> m_y, m_residual, m_sum;
  Array<compute_t<T>*> m_rstd;
};

template <class T>
class Backward {
 public:
  Backward(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_form(s.form),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.rows, s.hidden)),
        m_weight(random_array<T*>(exec, seed + 1, "kformer::perf::weight", s.hidden)),
        m_dy(random_array<T**>(exec, seed + 2, "kformer::perf::dy", s.rows, s.hidden)),
        m_dx("kformer::perf::dx", s.rows, s.hidden),
        m_rstd("kformer::perf::rstd", s.rows),
        m_dweight("kformer::perf::dweight", s.hidden),
        m_workspace("kformer::perf::workspace", rms_norm_backward_workspace_bytes<T>(exec, s.rows, s.hidden)) {
    rms_norm_forward(exec, m_x, m_weight, m_dx, m_rstd);
    if (m_form != Form::plain)
      m_dsum = random_array<T**>(exec, seed + 3, "kformer::perf::dsum", s.rows, s.hidden);
  }
  std::size_t bytes() const { return bytes_of(m_x, m_dy, m_dx, m_dsum); }
  void launch(const Space& exec) const {
    if (m_form == Form::residual)
      return rms_norm_residual_backward(exec,
                                        RmsNormResidualBackwardOperands{.sum = m_x,
                                                                        .weight = m_weight,
                                                                        .rstd = m_rstd,
                                                                        .dy = m_dy,
                                                                        .dsum = m_dsum,
                                                                        .dx = m_dx,
                                                                        .dweight = m_dweight},
                                        m_workspace);
    rms_norm_backward(
        exec,
        RmsNormBackwardOperands{
            .x = m_x, .weight = m_weight, .rstd = m_rstd, .dy = m_dy, .dx = m_dx, .dweight = m_dweight},
        m_workspace);
    if (m_form == Form::unfused) add(exec, tensor_ref(m_dx), tensor_ref(m_dsum), tensor_ref(m_dx));
  }

 private:
  Form m_form;
  Array<T**> m_x;
  Array<T*> m_weight;
  Array<T**> m_dy, m_dx, m_dsum;
  Array<compute_t<T>*> m_rstd, m_dweight;
  Kokkos::View<std::byte*, Space> m_workspace;
};

// The unfused form counts the bytes of the fused one: it does the same work.
Case make_case(DType dtype, const Shape& s, bool backward) {
  static constexpr const char* blocks[] = {"rms_norm", "rms_norm_residual", "rms_norm_residual_unfused"};
  const int arrays = s.form == Form::plain ? (backward ? 3 : 2) : 4;
  return {.block = blocks[static_cast<int>(s.form)],
          .direction = backward ? "backward" : "forward",
          .dtype = dtype,
          .tail = 'H' + std::to_string(s.hidden),
          .bytes = bytes_of_arrays(arrays, s.rows * s.hidden, dtype),
          .written = bytes_of_arrays(!backward && s.form != Form::plain ? 2 : 1, s.rows * s.hidden, dtype),
          .shape = {{"rows", s.rows}, {"hidden", s.hidden}},
          .make = backward ? rotating<Backward>(dtype, s) : rotating<Forward>(dtype, s)};
}

}  // namespace

std::vector<Case> rms_norm_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const Form form : {Form::plain, Form::residual, Form::unfused})
    for (const bool backward : {false, true})
      sizes.for_each_hidden([&](DType dtype, std::int64_t hidden) {
        cases.push_back(make_case(dtype, {sizes.elements / hidden, hidden, form}, backward));
      });
  return cases;
}

}  // namespace kformer::perf
