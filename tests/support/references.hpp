// SPDX-License-Identifier: MIT
#pragma once

#include "ops/attention/reference.hpp"
#include "ops/common/estimated.hpp"
#include "ops/cross_entropy/reference.hpp"
#include "ops/linear/reference.hpp"
#include "ops/lora/reference.hpp"
#include "ops/rms_norm/reference.hpp"
#include "ops/rope/reference.hpp"
#include "ops/standard_attention/reference.hpp"
#include "ops/swiglu/reference.hpp"

/// \file
/// The references that tests spend most of their time in, compiled once and with optimisation.

// A keyword cannot be in parentheses. NOLINTBEGIN(bugprone-macro-parentheses)

/// `KEYWORD` is `extern` or nothing; `R` and `S` are `Real` and `Store` of the references.
#define KFORMER_TEST_REFERENCES(KEYWORD, R, S)                                                                 \
  KEYWORD template AttentionResult<R> attention_forward<R, S>(                                                 \
      const HostTensor<R>&, const HostTensor<R>&, const HostTensor<R>&, const AttentionExtraTensors<R>&,       \
      const AttentionOptions&, const HostTensor<R>&);                                                          \
  KEYWORD template AttentionGradients<R> attention_backward<R, S>(                                             \
      const HostTensor<R>&, const HostTensor<R>&, const HostTensor<R>&, const AttentionExtraTensors<R>&,       \
      const HostTensor<R>&, const AttentionOptions&, const AttentionSaved<R>&);                                \
  KEYWORD template AttentionResult<R> attention_forward<R, S, S>(                                              \
      const HostTensor<R>&, const HostTensor<R>&, const HostTensor<R>&, const AttentionExtraTensors<R>&,       \
      const AttentionOptions&, const HostTensor<R>&);                                                          \
  KEYWORD template AttentionGradients<R> standard_attention_backward<R, S>(                                    \
      const HostTensor<R>&, const HostTensor<R>&, const HostTensor<R>&, const HostTensor<R>&,                  \
      const HostTensor<R>&, const AttentionOptions&);                                                          \
  KEYWORD template HostTensor<R> cross_entropy_backward<R, S>(const HostTensor<R>&, const HostTensor<R>&,      \
                                                              const HostTensor<R>&, const HostTensor<R>&,      \
                                                              const CrossEntropyOptions&);                     \
  KEYWORD template HostTensor<R> linear_forward<R, S>(const HostTensor<R>&, const HostTensor<R>&,              \
                                                      const HostTensor<R>&, const HostTensor<R>&, R);          \
  KEYWORD template HostTensor<R> linear_backward_input<R, S>(const HostTensor<R>&, const HostTensor<R>&, R);   \
  KEYWORD template LoraResult<R> lora_forward<R, S>(const HostTensor<R>&, const HostTensor<R>&,                \
                                                    const HostTensor<R>&, const HostTensor<R>&,                \
                                                    const HostTensor<R>&, const std::vector<LoraTensors<R>>&); \
  KEYWORD template LoraResult<R> lora_backward_input<R, S>(                                                    \
      const HostTensor<R>&, const HostTensor<R>&, const std::vector<LoraTensors<R>>&, const HostTensor<R>&);   \
  KEYWORD template RmsNormResult<R> rms_norm_forward<R, S>(const HostTensor<R>&, const HostTensor<R>&,         \
                                                           const HostTensor<R>&, double);                      \
  KEYWORD template RmsNormGradients<R> rms_norm_backward<R, S>(const HostTensor<R>&, const HostTensor<R>&,     \
                                                               const HostTensor<R>&, const HostTensor<R>&,     \
                                                               const HostTensor<R>&);                          \
  KEYWORD template HostTensor<R> rope_rotate<R, S>(const HostTensor<R>&, const HostTensor<R>&,                 \
                                                   const HostTensor<R>&, const HostTensor<R>&, std::int64_t,   \
                                                   RopeLayout, int);                                           \
  KEYWORD template HostTensor<R> swiglu_forward<R, S>(const HostTensor<R>&, const HostTensor<R>&);             \
  KEYWORD template SwigluGradients<R> swiglu_backward<R, S>(const HostTensor<R>&, const HostTensor<R>&,        \
                                                            const HostTensor<R>&)

/// Those without a `Store`.
#define KFORMER_TEST_REFERENCES_OF(KEYWORD, R)                                                                \
  KEYWORD template CrossEntropyResult<R> cross_entropy_forward<R>(const HostTensor<R>&, const HostTensor<R>&, \
                                                                  const CrossEntropyOptions&);                \
  KEYWORD template HostTensor<R> linear_backward_weight<R>(const HostTensor<R>&, const HostTensor<R>&, R);    \
  KEYWORD template RopeTablesResult<R> rope_tables<R, R>(std::int64_t, std::int64_t, const RopeOptions&)

#define KFORMER_EVERY_TEST_REFERENCE(KEYWORD)                  \
  KFORMER_TEST_REFERENCES(KEYWORD, Estimated<float>, float);   \
  KFORMER_TEST_REFERENCES(KEYWORD, Estimated<float>, bf16);    \
  KFORMER_TEST_REFERENCES(KEYWORD, Estimated<float>, f16);     \
  KFORMER_TEST_REFERENCES(KEYWORD, Estimated<double>, double); \
  KFORMER_TEST_REFERENCES_OF(KEYWORD, Estimated<float>);       \
  KFORMER_TEST_REFERENCES_OF(KEYWORD, Estimated<double>)

// NOLINTEND(bugprone-macro-parentheses)

namespace kformer::Impl::reference {
KFORMER_EVERY_TEST_REFERENCE(extern);
}
