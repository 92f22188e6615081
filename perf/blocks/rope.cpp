// SPDX-License-Identifier: MIT
#include "kformer/ops/rope.hpp"

#include <algorithm>

#include "blocks/block_cases.hpp"
#include "passes/passes.hpp"

namespace kformer::perf {

namespace {

// The rotation, its inverse, and the rotation with the halves of each head exchanged in memory first.
enum class Form { forward, backward, unfused };

struct Shape {
  std::int64_t batch, seq_len;
  LlamaConfig config;
  Form form;
};

// Heads of 64, of 128 where the queries are as wide as those of Llama-3.1-8B, four for each head of the keys.
LlamaConfig heads_of(std::int64_t hidden) {
  LlamaConfig config;
  config.hidden_size = hidden;
  config.head_dim = std::min<std::int64_t>(hidden, hidden >= 4096 ? 128 : 64);
  config.num_attention_heads = hidden / config.head_dim;
  config.num_key_value_heads = std::max<std::int64_t>(1, config.num_attention_heads / 4);
  return config;
}

// Queries and keys are columns of one product, as in a layer.
template <class T>
class Call {
 public:
  Call(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_form(s.form),
        m_rows(s.batch * s.seq_len),
        m_rotated_columns(static_cast<std::size_t>(s.config.qkv_size() - key_value_size(s.config))),
        m_qkv(random_array<T**>(exec, seed, "kformer::perf::qkv", m_rows, s.config.qkv_size())),
        m_q(heads(s, 0, s.config.num_attention_heads)),
        m_k(heads(s, s.config.attention_size(), s.config.num_key_value_heads)),
        m_cos("kformer::perf::cos", s.seq_len, s.config.head_dim / 2),
        m_sin("kformer::perf::sin", s.seq_len, s.config.head_dim / 2) {
    rope_tables(exec, m_cos, m_sin);
    if (m_form != Form::unfused) return;
    m_exchanged = Array<T**>("kformer::perf::exchanged", m_rows, m_rotated_columns);
    m_rotated = Array<T**>("kformer::perf::rotated", m_rows, m_rotated_columns);
  }
  std::size_t bytes() const {
    return static_cast<std::size_t>(m_rows) * m_rotated_columns * sizeof(T) + bytes_of(m_exchanged, m_rotated);
  }
  void launch(const Space& exec) const {
    if (m_form == Form::forward)
      rope_forward(exec, m_q, m_k, m_cos, m_sin);
    else if (m_form == Form::backward)
      rope_backward(exec, m_q, m_k, m_cos, m_sin);
    else
      launch_unfused(exec);
  }

 private:
  using Heads = Kokkos::View<T****, Kokkos::LayoutStride, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  static std::int64_t key_value_size(const LlamaConfig& c) { return c.num_key_value_heads * c.head_dim; }
  Heads heads(const Shape& s, std::int64_t first, std::int64_t count) const {
    const auto n = [](std::int64_t v) { return static_cast<std::size_t>(v); };
    const std::size_t width = m_qkv.stride(0), dim = n(s.config.head_dim);
    return Heads(m_qkv.data() + first, Kokkos::LayoutStride(n(s.batch), n(s.seq_len) * width, n(s.seq_len),
                                                            width, n(count), dim, dim, 1));
  }

  // As modeling_llama of transformers has it: x · cos + rotate_half(x) · sin, on the columns of q and k at once.
  void launch_unfused(const Space& exec) const {
    const TensorRef x = tensor_ref(m_qkv), exchanged = tensor_ref(m_exchanged);
    rotate_half(exec, x, static_cast<std::int64_t>(m_cos.extent(1)), exchanged);
    apply_rotation(exec, x, exchanged, tensor_ref(m_cos), tensor_ref(m_sin), tensor_ref(m_rotated));
  }

  using C = compute_t<T>;

  Form m_form;
  std::int64_t m_rows;
  std::size_t m_rotated_columns;
  Array<T**> m_qkv;
  Heads m_q, m_k;
  Array<C**> m_cos, m_sin;
  Array<T**> m_exchanged, m_rotated;
};

// The unfused form counts the bytes of the fused one: it does the same work.
Case make_case(DType dtype, const Shape& s) {
  return {.block = s.form == Form::unfused ? "rope_unfused" : "rope",
          .direction = s.form == Form::backward ? "backward" : "forward",
          .dtype = dtype,
          .tail = 'H' + std::to_string(s.config.hidden_size),
          .bytes = rope_bytes(s.batch * s.seq_len, s.config, dtype),
          .written = rope_bytes(s.batch * s.seq_len, s.config, dtype) / 2,
          .shape = {{"batch", s.batch},
                    {"seq_len", s.seq_len},
                    {"q_heads", s.config.num_attention_heads},
                    {"kv_heads", s.config.num_key_value_heads},
                    {"head_dim", s.config.head_dim}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> rope_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const Form form : {Form::forward, Form::backward, Form::unfused})
    sizes.for_each_hidden([&](DType dtype, std::int64_t hidden) {
      const std::int64_t batch = std::max<std::int64_t>(1, sizes.elements / hidden / sizes.seq_len);
      cases.push_back(make_case(dtype, {batch, sizes.seq_len, heads_of(hidden), form}));
    });
  return cases;
}

}  // namespace kformer::perf
