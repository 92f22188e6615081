// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/sampling/kokkos.hpp"
#include "ops/sampling/reference.hpp"

namespace kformer::Impl {

template <class Exec>
struct List<Sampling, Exec> : UsualList<Sampling, Exec> {
  static constexpr auto kokkos_workspace = sampling_kokkos_workspace;

  static void kokkos(const Exec& exec, const Sampling& p, const Workspace& workspace) {
    dispatch_dtype(p.logits.dtype,
                   [&]<class T>(std::type_identity<T>) { sample_kokkos<T>(exec, p, workspace); });
  }
  static void reference(const Sampling& p) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      const auto result = reference::sample<compute_t<T>, double>(
          read_tensor<double>(p.logits), read_tensor<double>(p.history), read_tensor<double>(p.history_lengths),
          read_tensor<double>(p.positions), p.options);
      const auto tokens = p.tokens.as<std::int32_t, 1>();
      for (std::size_t row = 0; row < result.tokens.size(); ++row) tokens(row) = result.tokens[row];
      write_tensor(result.log_probabilities, p.log_probabilities);
    });
  }
};

template <class Exec>
struct List<TokenLogProbabilities, Exec> : UsualList<TokenLogProbabilities, Exec> {
  static void kokkos(const Exec& exec, const TokenLogProbabilities& p, const Workspace&) {
    dispatch_dtype(p.logits.dtype,
                   [&]<class T>(std::type_identity<T>) { token_log_probabilities_kokkos<T>(exec, p); });
  }
  static void reference(const TokenLogProbabilities& p) {
    dispatch_dtype(p.logits.dtype, [&]<class T>(std::type_identity<T>) {
      write_tensor(reference::token_log_probabilities<compute_t<T>, double>(read_tensor<double>(p.logits),
                                                                            read_tensor<double>(p.ids)),
                   p.log_probabilities);
    });
  }
};

}  // namespace kformer::Impl
