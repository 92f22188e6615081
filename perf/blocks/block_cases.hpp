// SPDX-License-Identifier: MIT
#pragma once

#include <string>
#include <vector>

#include "case.hpp"
#include "kformer/model/llama_config.hpp"

namespace kformer::perf {

/// A model whose products and layers are timed.
struct Model {
  std::string name;
  LlamaConfig config;
};

/// How large the operands are.
struct BlockSizes {
  std::vector<DType> dtypes;               ///< of everything
  std::vector<DType> more_dtypes;          ///< of one size of each block that passes over memory
  std::int64_t elements;                   ///< of an array (rows, hidden)
  std::vector<std::int64_t> hidden_sizes;  ///< of these blocks
  std::int64_t more_hidden_size;           ///< the one size of `more_dtypes`
  std::int64_t seq_len;                    ///< positions of the rotary embedding
  std::int64_t logits;                     ///< elements of the logits
  std::vector<std::int64_t> vocabularies;  ///< of the logits
  std::int64_t output_rows;                ///< tokens of the output matrix with its loss
  std::int64_t output_vocabulary;          ///< words of it
  std::int64_t table;                      ///< elements of the embedding
  std::vector<Model> models;           ///< of products and layers; of the first, the optimizer step of a layer
  std::vector<Model> language_models;  ///< whole ones, of generation
  std::int64_t batch, tokens;          ///< of products and layers: sequences, and tokens of one

  /// Calls `f(dtype, hidden)` for each of the blocks that pass over memory.
  template <class F>
  void for_each_hidden(const F& f) const {
    for (const DType dtype : dtypes)
      for (const std::int64_t hidden : hidden_sizes) f(dtype, hidden);
    for (const DType dtype : more_dtypes) f(dtype, more_hidden_size);
  }
};

/// One list per block.
std::vector<Case> rms_norm_cases(const BlockSizes& sizes);
std::vector<Case> rope_cases(const BlockSizes& sizes);
std::vector<Case> swiglu_cases(const BlockSizes& sizes);
std::vector<Case> cross_entropy_cases(const BlockSizes& sizes);
std::vector<Case> linear_cross_entropy_cases(const BlockSizes& sizes);
std::vector<Case> embedding_cases(const BlockSizes& sizes);
std::vector<Case> adamw_cases(const BlockSizes& sizes);
std::vector<Case> linear_cases(const BlockSizes& sizes);
std::vector<Case> quantized_cases(const BlockSizes& sizes);
std::vector<Case> layer_cases(const BlockSizes& sizes);
std::vector<Case> decode_cases(const BlockSizes& sizes);

/// Bytes of `count` arrays of `elements`.
inline double bytes_of_arrays(int count, std::int64_t elements, DType dtype) {
  return static_cast<double>(count) * static_cast<double>(elements) * static_cast<double>(size_of(dtype));
}

/// What rotating both queries and keys moves.
inline double rope_bytes(std::int64_t rows, const LlamaConfig& config, DType dtype) {
  const std::int64_t heads = config.num_attention_heads + config.num_key_value_heads;
  return bytes_of_arrays(2, rows * heads * config.head_dim, dtype);
}

/// Makes a run whose calls are `Call<T>(exec, seed, arguments...)`, T the storage type `dtype`.
template <template <class> class Call, class... Arguments>
std::function<std::unique_ptr<Run>(std::size_t)> rotating(DType dtype, const Arguments&... arguments) {
  return [=](std::size_t rotated) {
    return dispatch_dtype(dtype, [&]<class T>(std::type_identity<T>) -> std::unique_ptr<Run> {
      return std::make_unique<RotatingRun<Call<T>>>(
          rotated, [&](const Space& exec, std::uint64_t seed) { return Call<T>(exec, seed, arguments...); });
    });
  };
}

}  // namespace kformer::perf
