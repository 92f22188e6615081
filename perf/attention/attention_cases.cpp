// SPDX-License-Identifier: MIT
#include "attention/attention_cases.hpp"

#include "run.hpp"

namespace kformer::perf {

namespace {

// Enough work for the machine.
constexpr std::int64_t hidden_size = on_host ? 512 : 2048, tokens = on_host ? 8192 : 16384;

AttentionShape self_attention(DType dtype, std::int64_t batch, std::int64_t seq_len, std::int64_t q_heads,
                              std::int64_t kv_heads, std::int64_t head_dim) {
  return {.dtype = dtype,
          .batch = batch,
          .q_len = seq_len,
          .kv_len = seq_len,
          .q_heads = q_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .v_head_dim = head_dim};
}

class CaseList {
 public:
  void add(const std::string& tail, bool backward, const AttentionShape& shape, const AttentionOptions& options,
           Algorithm algorithm = Algorithm::chosen) {
    m_cases.push_back({tail, algorithm, backward, shape, options});
  }
  void add_both_directions(const std::string& tail, const AttentionShape& shape,
                           const AttentionOptions& options, Algorithm algorithm = Algorithm::chosen) {
    for (const bool backward : {false, true}) add(tail, backward, shape, options, algorithm);
  }
  // The same number of tokens and the same width for every length and head dimension.
  void add_lengths(DType dtype, std::int64_t first, std::int64_t last, Algorithm algorithm) {
    for (const std::int64_t head_dim : {64, 128})
      for (std::int64_t seq_len = first; seq_len <= last; seq_len *= 2)
        for (const bool causal : {false, true}) {
          const std::int64_t heads = hidden_size / head_dim;
          add_both_directions(
              'D' + std::to_string(head_dim) + "/S" + std::to_string(seq_len) + (causal ? "/causal" : "/full"),
              self_attention(dtype, tokens / seq_len, seq_len, heads, heads, head_dim), {.causal = causal},
              algorithm);
        }
  }
  std::vector<AttentionCase> cases() && { return std::move(m_cases); }

 private:
  std::vector<AttentionCase> m_cases;
};

}  // namespace

double AttentionCase::flops() const {
  const auto q_len = static_cast<double>(shape.q_len), kv_len = static_cast<double>(shape.kv_len);
  double pairs = options.causal ? 0.5 * q_len * kv_len : q_len * kv_len;
  if (options.window > 0) {
    const double beyond = kv_len - static_cast<double>(options.window);
    pairs -= (options.causal ? 0.5 : 1.0) * beyond * beyond;
  }
  const double forward = 2.0 * static_cast<double>(shape.batch * shape.q_heads) * pairs *
                         static_cast<double>(shape.head_dim + shape.v_head_dim);
  return backward ? 2.5 * forward : forward;
}

double AttentionCase::out_bytes() const {
  const std::int64_t elements = shape.batch * shape.q_len * shape.q_heads * shape.v_head_dim;
  return static_cast<double>(elements) * static_cast<double>(size_of(shape.dtype));
}

double AttentionCase::forward_bytes() const {
  const std::int64_t elements = shape.batch * (shape.head_dim + shape.v_head_dim) *
                                (shape.q_len * shape.q_heads + shape.kv_len * shape.kv_heads);
  return static_cast<double>(elements) * static_cast<double>(size_of(shape.dtype));
}

namespace {

std::vector<AttentionCase> host_cases() {
  CaseList list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    list.add_lengths(dtype, 512, 8192, Algorithm::chosen);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    list.add_both_directions("smollm2-135m", self_attention(dtype, 1, 512, 9, 3, 64), {.causal = true});
    list.add_both_directions("llama-3.1-8b", self_attention(dtype, 1, 4096, 32, 8, 128), {.causal = true});
    list.add_both_directions("D64/S8192/window1024", self_attention(dtype, 1, 8192, 8, 8, 64),
                             {.causal = true, .window = 1024});
    AttentionShape decode = self_attention(dtype, 1, 8192, 32, 8, 128);
    decode.q_len = 1;
    for (const Algorithm algorithm : {Algorithm::chosen, Algorithm::portable})
      list.add("decode8192", false, decode, {}, algorithm);
    for (const Algorithm algorithm : {Algorithm::chosen, Algorithm::functor})
      list.add_both_directions("D64/S4096/neighbours128", self_attention(dtype, 1, 4096, 8, 8, 64),
                               {.window = 129}, algorithm);
  }
  list.add_lengths(DType::f32, 512, 8192, Algorithm::portable);
  list.add_lengths(DType::f32, 512, 4096, Algorithm::standard);
  return std::move(list).cases();
}

std::vector<AttentionCase> device_cases() {
  CaseList list;
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    list.add_lengths(dtype, 512, dtype == DType::f32 ? 4096 : 16384, Algorithm::chosen);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    list.add_both_directions("llama-3.1-8b", self_attention(dtype, 1, 4096, 32, 8, 128), {.causal = true});
    list.add_both_directions("llama-3.1-70b/S8192", self_attention(dtype, 1, 8192, 64, 8, 128),
                             {.causal = true});
    list.add_both_directions("D64/S8192/window1024", self_attention(dtype, 2, 8192, 32, 32, 64),
                             {.causal = true, .window = 1024});
    for (const std::int64_t batch : {1, 64}) {
      AttentionShape decode = self_attention(dtype, batch, 8192, 32, 8, 128);
      decode.q_len = 1;
      for (const Algorithm algorithm : {Algorithm::chosen, Algorithm::portable})
        list.add("decode8192/B" + std::to_string(batch), false, decode, {}, algorithm);
    }
  }
  list.add_lengths(DType::bf16, 1024, 4096, Algorithm::portable);
  list.add_lengths(DType::bf16, 1024, 4096, Algorithm::standard);
  return std::move(list).cases();
}

}  // namespace

std::vector<AttentionCase> attention_cases() { return on_host ? host_cases() : device_cases(); }

std::vector<AttentionCase> attention_smoke_cases() {
  CaseList list;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
    list.add_both_directions("D8/S32/causal", self_attention(dtype, 1, 32, 2, 2, 8), {.causal = true});
  for (const Algorithm algorithm : {Algorithm::portable, Algorithm::standard})
    list.add_both_directions("D8/S32/full", self_attention(DType::f32, 2, 32, 2, 1, 8), {}, algorithm);
  list.add("D8/S32/window8", false, self_attention(DType::f32, 1, 32, 2, 2, 8), {.causal = true, .window = 8});
  list.add_both_directions("D8/S32/neighbours8", self_attention(DType::f32, 1, 32, 2, 2, 8), {.window = 9},
                           Algorithm::functor);
  AttentionShape decode = self_attention(DType::f32, 1, 64, 4, 1, 8);
  decode.q_len = 1;
  list.add("decode64", false, decode, {});
  return std::move(list).cases();
}

}  // namespace kformer::perf
