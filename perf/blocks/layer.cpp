// SPDX-License-Identifier: MIT
#include <cmath>

#include "attention/attention_cases.hpp"
#include "blocks/block_cases.hpp"
#include "kformer/model/decoder_layer.hpp"

namespace kformer::perf {

namespace {

struct Shape {
  LlamaConfig config;
  LayerShape tokens;
};

// Forward and backward of a layer in training.
template <class T>
class Call {
 public:
  Call(const Space& exec, std::uint64_t seed, const Shape& s)
      : m_ledger(Ledger::create()),
        m_layer(std::make_shared<DecoderLayer<Space, T>>(s.config, s.tokens, LayerOptions{}, *m_ledger)),
        m_x(random_array<T**>(exec, seed, "kformer::perf::x", s.tokens.rows(), s.config.hidden_size)),
        m_dy(random_array<T**>(exec, seed + 1, "kformer::perf::dy", s.tokens.rows(), s.config.hidden_size)),
        m_y("kformer::perf::y", s.tokens.rows(), s.config.hidden_size),
        m_dx("kformer::perf::dx", s.tokens.rows(), s.config.hidden_size) {
    m_layer->prepare(exec);
    seed += 2;
    for (const Parameter& parameter : m_layer->parameters()) {
      const TensorRef& weight = parameter.weight;
      const bool norm = weight.rank == 1;
      const double scale = norm ? 0.125 : 1 / std::sqrt(static_cast<double>(weight.extent[1]));
      measure::fill_random(exec, static_cast<T*>(weight.data), weight.size(), seed++, scale, norm ? 1 : 0);
    }
  }
  std::size_t bytes() const { return m_ledger->current_total(); }
  void launch(const Space& exec) const {
    m_layer->forward(exec, m_x, m_y);
    m_layer->backward(exec, m_x, m_dy, m_dx);
  }

 private:
  std::shared_ptr<Ledger> m_ledger;
  std::shared_ptr<DecoderLayer<Space, T>> m_layer;
  Array<T**> m_x, m_dy, m_y, m_dx;
};

// The products, and backward both their gradients; attention.
double layer_flops(const Shape& s, DType dtype) {
  const LlamaConfig& c = s.config;
  const double matrices =
      static_cast<double>((c.qkv_size() + c.attention_size() + 3 * c.intermediate_size) * c.hidden_size);
  AttentionCase attention{.shape = {.dtype = dtype,
                                    .batch = s.tokens.batch,
                                    .q_len = s.tokens.seq_len,
                                    .kv_len = s.tokens.seq_len,
                                    .q_heads = c.num_attention_heads,
                                    .kv_heads = c.num_key_value_heads,
                                    .head_dim = c.head_dim,
                                    .v_head_dim = c.head_dim},
                          .options = {.causal = true}};
  double flops = 3 * 2 * static_cast<double>(s.tokens.rows()) * matrices;
  for (const bool backward : {false, true}) {
    attention.backward = backward;
    flops += attention.flops();
  }
  return flops;
}

// Norms, rotations and SwiGLU, without what backward computes again; residuals are part of a product forward
// and of a norm backward.
double layer_bytes(const Shape& s, DType dtype) {
  const std::int64_t rows = s.tokens.rows();
  const double norms = 2 * bytes_of_arrays(2 + 4, rows * s.config.hidden_size, dtype);
  const double swiglu = bytes_of_arrays(3 + 5, rows * s.config.intermediate_size, dtype);
  return norms + swiglu + 2 * rope_bytes(rows, s.config, dtype);
}

Case make_case(DType dtype, const std::string& model, const Shape& s) {
  return {.block = "layer",
          .direction = "forward_backward",
          .dtype = dtype,
          .tail = model,
          .limit = Limit::sum,
          .flops = layer_flops(s, dtype),
          .bytes = layer_bytes(s, dtype),
          .shape = {{"batch", s.tokens.batch},
                    {"seq_len", s.tokens.seq_len},
                    {"hidden", s.config.hidden_size},
                    {"intermediate", s.config.intermediate_size},
                    {"q_heads", s.config.num_attention_heads},
                    {"kv_heads", s.config.num_key_value_heads},
                    {"head_dim", s.config.head_dim}},
          .make = rotating<Call>(dtype, s)};
}

}  // namespace

std::vector<Case> layer_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const DType dtype : sizes.dtypes)
    for (const auto& [name, config] : sizes.models)
      cases.push_back(make_case(dtype, name, {config, {sizes.batch, sizes.tokens}}));
  return cases;
}

}  // namespace kformer::perf
