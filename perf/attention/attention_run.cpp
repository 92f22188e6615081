// SPDX-License-Identifier: MIT
#include "attention/attention_run.hpp"

#include <algorithm>
#include <optional>

#include "kformer/ops/attention_functors.hpp"
#include "kformer/ops/standard_attention.hpp"
#include "measure/fill.hpp"

namespace kformer::perf {

namespace {

// What one call reads and writes; the empty arrays are those it does not need.
template <class T>
struct OperandSet {
  Array<T****> q, k, v, out, dout, dq, dk, dv, probabilities;
  Array<compute_t<T>***> lse;

  OperandSet(const Space& exec, const AttentionCase& c, std::uint64_t seed) {
    const AttentionShape& s = c.shape;
    const auto normal = [&](const Array<T****>& array) {
      measure::fill_normal(exec, array.data(), static_cast<std::int64_t>(array.size()), ++seed);
    };
    q = Array<T****>("kformer::perf::q", s.batch, s.q_len, s.q_heads, s.head_dim);
    k = Array<T****>("kformer::perf::k", s.batch, s.kv_len, s.kv_heads, s.head_dim);
    v = Array<T****>("kformer::perf::v", s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
    out = Array<T****>("kformer::perf::out", s.batch, s.q_len, s.q_heads, s.v_head_dim);
    for (const Array<T****>& array : {q, k, v}) normal(array);
    if (c.algorithm == Algorithm::standard)
      probabilities = Array<T****>("kformer::perf::probabilities", s.batch, s.q_heads, s.q_len, s.kv_len);
    else
      lse = decltype(lse)("kformer::perf::lse", s.batch, s.q_heads, s.q_len);
    if (!c.backward) return;
    dout = Array<T****>("kformer::perf::dout", s.batch, s.q_len, s.q_heads, s.v_head_dim);
    normal(dout);
    dq = Array<T****>("kformer::perf::dq", s.batch, s.q_len, s.q_heads, s.head_dim);
    dk = Array<T****>("kformer::perf::dk", s.batch, s.kv_len, s.kv_heads, s.head_dim);
    dv = Array<T****>("kformer::perf::dv", s.batch, s.kv_len, s.kv_heads, s.v_head_dim);
  }
};

using Bytes = Kokkos::View<std::byte*, Space>;

// The kernels of an algorithm while it lives.
class KernelsOf {
 public:
  explicit KernelsOf(Algorithm algorithm) {
    if (algorithm == Algorithm::portable) m_forced.emplace("attention:kokkos");
  }

 private:
  std::optional<ForcedKernels> m_forced;
};

// The option `window` as a mask: the two must cost about the same.
struct Neighbours {
  std::int64_t window;

  KOKKOS_FUNCTION bool operator()(AttentionIndex at) const { return Kokkos::abs(at.query - at.key) < window; }
  KOKKOS_FUNCTION KeyRange keys(AttentionRows rows) const {
    return {rows.first - window + 1, rows.end + window - 1};
  }
};

template <class T>
class Call {
 public:
  Call(const Space& exec, const AttentionCase& c, const Bytes& workspace, std::uint64_t seed)
      : m_backward(c.backward),
        m_algorithm(c.algorithm),
        m_options(c.options),
        m_workspace(workspace),
        m_x(exec, c, seed) {
    if (m_backward) forward(exec);
  }
  std::size_t bytes() const {
    return bytes_of(m_x.q, m_x.k, m_x.v, m_x.out, m_x.dout, m_x.dq, m_x.dk, m_x.dv, m_x.probabilities);
  }
  void launch(const Space& exec) const {
    if (m_backward)
      backward(exec);
    else
      forward(exec);
  }

 private:
  void forward(const Space& exec) const {
    const KernelsOf kernels(m_algorithm);
    if (m_algorithm == Algorithm::standard)
      standard_attention_forward(exec, m_x.q, m_x.k, m_x.v, m_x.out, m_x.probabilities, m_options);
    else if (m_algorithm == Algorithm::functor)
      attention_forward(exec, m_x.q, m_x.k, m_x.v, m_x.out, m_x.lse, Neighbours{m_options.window}, {}, {},
                        m_workspace);
    else
      attention_forward(exec, m_x.q, m_x.k, m_x.v, m_x.out, m_x.lse, m_options, {}, m_workspace);
  }
  void backward(const Space& exec) const {
    if (m_algorithm == Algorithm::standard)
      standard_backward(exec);
    else
      flash_backward(exec);
  }
  void standard_backward(const Space& exec) const {
    standard_attention_backward(exec,
                                StandardAttentionBackwardOperands{.q = m_x.q,
                                                                  .k = m_x.k,
                                                                  .v = m_x.v,
                                                                  .probabilities = m_x.probabilities,
                                                                  .dout = m_x.dout,
                                                                  .dq = m_x.dq,
                                                                  .dk = m_x.dk,
                                                                  .dv = m_x.dv},
                                m_options, m_workspace);
  }
  void flash_backward(const Space& exec) const {
    const KernelsOf kernels(m_algorithm);
    const AttentionBackwardOperands operands{.q = m_x.q,
                                             .k = m_x.k,
                                             .v = m_x.v,
                                             .out = m_x.out,
                                             .lse = m_x.lse,
                                             .dout = m_x.dout,
                                             .dq = m_x.dq,
                                             .dk = m_x.dk,
                                             .dv = m_x.dv};
    if (m_algorithm == Algorithm::functor)
      attention_backward(exec, operands, Neighbours{m_options.window}, {}, {}, {}, m_workspace);
    else
      attention_backward(exec, operands, m_options, {}, {}, m_workspace);
  }

  bool m_backward;
  Algorithm m_algorithm;
  AttentionOptions m_options;
  Bytes m_workspace;
  OperandSet<T> m_x;
};

template <class T>
std::size_t workspace_bytes(const AttentionCase& c) {
  const Space exec;
  const AttentionShape& s = c.shape;
  if (c.algorithm == Algorithm::standard)
    return c.backward
               ? standard_attention_backward_workspace_bytes<T>(exec, s.batch, s.q_heads, s.q_len, s.kv_len)
               : 0;
  const KernelsOf kernels(c.algorithm);
  std::size_t bytes = attention_forward_workspace_bytes(exec, s, c.options);
  if (c.backward) bytes = std::max(bytes, attention_backward_workspace_bytes(exec, s, c.options));
  if (c.backward && c.algorithm == Algorithm::functor)
    bytes = std::max(bytes, attention_backward_workspace_bytes(exec, s, Neighbours{c.options.window}));
  return bytes;
}

std::unique_ptr<Run> make_attention_run(const AttentionCase& c, std::size_t rotated) {
  return dispatch_dtype(c.shape.dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Run> {
    const Bytes workspace("kformer::perf::workspace", workspace_bytes<T>(c));
    return std::make_unique<RotatingRun<Call<T>>>(
        rotated, [&](const Space& exec, std::uint64_t seed) { return Call<T>(exec, c, workspace, seed); });
  });
}

}  // namespace

Case measured(const AttentionCase& c) {
  static constexpr const char* blocks[] = {"attention", "attention_portable", "attention_functor",
                                           "standard_attention"};
  return {.block = blocks[static_cast<int>(c.algorithm)],
          .direction = c.backward ? "backward" : "forward",
          .dtype = c.shape.dtype,
          .tail = c.tail,
          .limit = c.is_decode() ? Limit::memory : Limit::arithmetic,
          .flops = c.flops(),
          .bytes = c.forward_bytes(),
          .written = c.out_bytes(),
          .shape = {{"batch", c.shape.batch},
                    {"q_len", c.shape.q_len},
                    {"kv_len", c.shape.kv_len},
                    {"q_heads", c.shape.q_heads},
                    {"kv_heads", c.shape.kv_heads},
                    {"head_dim", c.shape.head_dim},
                    {"causal", c.options.causal},
                    {"window", c.options.window}},
          .make = [c](std::size_t rotated) { return make_attention_run(c, rotated); }};
}

}  // namespace kformer::perf
