// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/core/types/names.hpp"

namespace kformer {

/// What the files of a training set contain.
enum class DataFormat {
  text,      ///< UTF-8 text; a file is a document
  tokens,    ///< token ids: `.npy` or HDF5
  chat,      ///< conversations, or prompts with completions, one JSON object a line
  synthetic  ///< no files: generated tasks
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<DataFormat> = {"text", "tokens", "chat", "synthetic"};

/// How documents fill sequences of one length.
enum class Packing {
  stream,    ///< one after another, cut wherever a sequence is full
  best_fit,  ///< several whole documents in one sequence, separated in attention
  pad        ///< one document, then padding
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 3> names_of<Packing> = {"stream", "best_fit", "pad"};

/// What happens to a prompt and a completion that together are too long.
enum class Truncation {
  keep_start,  ///< the end is cut off
  drop         ///< the pair is left out
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 2> names_of<Truncation> = {"keep_start", "drop"};

/// The generated tasks. A model reads the text before "=" and learns what follows.
enum class SyntheticTask {
  copy,     ///< "bca=bca"
  reverse,  ///< "bca=acb"
  sort,     ///< "bca=abc"
  sum       ///< "17+25=42"
};
/// The names of the enumerators in decks, results and messages, in order.
template <>
inline constexpr std::array<std::string_view, 4> names_of<SyntheticTask> = {"copy", "reverse", "sort", "sum"};

}  // namespace kformer
