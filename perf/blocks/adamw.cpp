// SPDX-License-Identifier: MIT
#include "kformer/ops/adamw.hpp"

#include "blocks/block_cases.hpp"

namespace kformer::perf {

namespace {

enum class States { plain, coded };

/// Elements of the weights of a decoder layer: two norms; queries, keys, values and output; gate, up and down.
std::vector<std::int64_t> weights_of(const LlamaConfig& c) {
  const std::int64_t hidden = c.hidden_size, keys = c.num_key_value_heads * c.head_dim * hidden,
                     inner = c.intermediate_size * hidden;
  const std::int64_t queries = c.attention_size() * hidden;
  return {hidden, hidden, queries, keys, keys, queries, inner, inner, inner};
}

/// A parameter with 16-bit weights has float masters.
template <class T>
class Parameter {
 public:
  using C = compute_t<T>;

  Parameter(const Space& exec, std::uint64_t seed, std::int64_t size, States states)
      : m_gradient(random_array<C*>(exec, seed, "kformer::perf::gradient", size)) {
    m_weight = random_array<T*>(exec, seed + 1, "kformer::perf::weight", size);
    if (sizeof(T) == 2) m_master = random_array<C*>(exec, seed + 1, "kformer::perf::master", size);
    if (states == States::plain) {
      m_mean = Array<C*>("kformer::perf::m", size);
      m_square = Array<C*>("kformer::perf::v", size);
      return;
    }
    const std::int64_t blocks = (size + adamw_block - 1) / adamw_block;
    m_mean_codes = Array<std::uint8_t*>("kformer::perf::m", size);
    m_square_codes = Array<std::uint8_t*>("kformer::perf::v", size);
    m_mean_scale = Array<float*>("kformer::perf::m_scale", blocks);
    m_square_scale = Array<float*>("kformer::perf::v_scale", blocks);
  }

  std::size_t bytes() const {
    return bytes_of(m_weight, m_gradient, m_master, m_mean, m_square, m_mean_codes, m_square_codes,
                    m_mean_scale, m_square_scale);
  }
  AdamWParameter operands() const {
    const bool coded = m_mean_codes.size() > 0;
    return {.weight = tensor_ref(m_weight),
            .gradient = tensor_ref(m_gradient),
            .master = m_master.size() > 0 ? tensor_ref(m_master) : TensorRef{},
            .m = coded ? tensor_ref(m_mean_codes) : tensor_ref(m_mean),
            .v = coded ? tensor_ref(m_square_codes) : tensor_ref(m_square),
            .m_scale = coded ? tensor_ref(m_mean_scale) : TensorRef{},
            .v_scale = coded ? tensor_ref(m_square_scale) : TensorRef{},
            .weight_decay = 0.1};
  }

 private:
  Array<T*> m_weight;
  Array<C*> m_gradient, m_master, m_mean, m_square;
  Array<std::uint8_t*> m_mean_codes, m_square_codes;
  Array<float*> m_mean_scale, m_square_scale;
};

template <class T>
class Step {
 public:
  Step(const Space& exec, std::uint64_t seed, const LlamaConfig& config, States states) {
    for (const std::int64_t size : weights_of(config)) m_arrays.emplace_back(exec, seed, size, states);
    for (const Parameter<T>& p : m_arrays) m_parameters.push_back(p.operands());
  }
  std::size_t bytes() const {
    std::size_t bytes = 0;
    for (const Parameter<T>& p : m_arrays) bytes += p.bytes();
    return bytes;
  }
  void launch(const Space& exec) const { adamw(exec, m_parameters); }

 private:
  std::vector<Parameter<T>> m_arrays;
  std::vector<AdamWParameter> m_parameters;
};

// Of an element: the gradient is read; the weight (or its float master), m and v are read and written, v and m
// with their share of a scale if they are coded; a 16-bit weight is written.
struct StepBytes {
  double read, written;

  StepBytes(const LlamaConfig& config, DType dtype, States states) {
    const double state = states == States::coded ? 1 + 4.0 / adamw_block : 4;
    double elements = 0;
    for (const std::int64_t size : weights_of(config)) elements += static_cast<double>(size);
    read = elements * (4 + 4 + 2 * state);
    written = elements * (4 + 2 * state + (size_of(dtype) == 2 ? 2 : 0));
  }
};

Case make_case(DType dtype, const Model& model, States states) {
  const LlamaConfig& c = model.config;
  const StepBytes bytes(c, dtype, states);
  return {.block = states == States::coded ? "adamw_8bit" : "adamw",
          .direction = "step",
          .dtype = dtype,
          .tail = model.name,
          .bytes = bytes.read + bytes.written,
          .written = bytes.written,
          .shape = {{"hidden", c.hidden_size},
                    {"intermediate", c.intermediate_size},
                    {"q_heads", c.num_attention_heads},
                    {"kv_heads", c.num_key_value_heads},
                    {"head_dim", c.head_dim}},
          .make = rotating<Step>(dtype, c, states)};
}

}  // namespace

std::vector<Case> adamw_cases(const BlockSizes& sizes) {
  std::vector<Case> cases;
  for (const States states : {States::plain, States::coded})
    for (const DType dtype : sizes.dtypes) cases.push_back(make_case(dtype, sizes.models.front(), states));
  return cases;
}

}  // namespace kformer::perf
