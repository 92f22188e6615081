// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "kformer/io/model_table.hpp"

namespace kformer::Impl {

/// The divisors of a model's RoPE frequencies under the llama3 rule (B. Rozière et al., Llama 3.1;
/// `transformers`, modeling_rope_utils.py): one factor for each pair of features.
std::vector<double> llama3_factors(const RopeScaling& scaling, double rope_theta, std::int64_t head_dim);

/// The rule behind the factors that a GGUF file stores: llama3 with the published low 1, high 4 and original
/// length 8192, or none where all factors are 1.
/// \param what description of the factors, for the error text
/// \throws FileError if no such rule gives these factors
RopeScaling rope_scaling_of(const std::vector<float>& factors, double rope_theta, std::int64_t head_dim,
                            const std::string& what);

}  // namespace kformer::Impl
