// SPDX-License-Identifier: MIT
#pragma once

#include "ops/adamw/kokkos.hpp"
#include "ops/common/simd_entries.hpp"

/// \file
/// SIMD kernels of AdamW as entries of the lists of host spaces: pieces of parameters, in turn to the threads.

namespace kformer::Impl::host {

template <MapSign sign>
AdamWMap adamw_map() {
  static const DynamicMap map = dynamic_map<sign>();
  return {map.value, map.border};
}

template <class Exec, Isa isa>
struct AdamWEntry {
  using P = AdamW;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject_processor<isa, P>, no_workspace<P>, run};
  }

  static void run(const Exec& exec, const P& p, const Workspace&) {
    for_each_kind_of_batch(
        p.parameters, [&]<class T, bool is_coded>(const AdamWBatch& batch, std::type_identity<T>,
                                                  std::bool_constant<is_coded>) {
          const AdamWKernels& kernels = adamw_kernels<built<isa>>(dtype_of<T>);
          if constexpr (is_coded)
            launch<T>("kformer::adamw_coded[simd]", exec, batch, p,
                      [step = kernels.coded_step, m_map = adamw_map<MapSign::with>(),
                       v_map = adamw_map<MapSign::without>()](const AdamWItem& item, std::int64_t begin,
                                                              std::int64_t end, const AdamWNumbers& numbers) {
                        step(item, begin, end, numbers, m_map, v_map);
                      });
          else
            launch<T>("kformer::adamw[simd]", exec, batch, p, kernels.step);
        });
  }

 private:
  template <class T, class Step>
  static void launch(const char* label, const Exec& exec, const AdamWBatch& batch, const P& p, Step step) {
    using C = compute_t<T>;
    for_each_piece(label, exec, batch.pieces, 1,
                   [=, numbers = adamw_numbers(p.options), scaling = gradient_scaling(p)](std::int64_t piece,
                                                                                          std::int64_t) {
                     if (scaling.template skips<C>()) return;
                     const AdamWRange range = range_of(batch, piece);
                     AdamWNumbers scaled = numbers;
                     scaled.gradient_factor = scaling.template factor<C>();
                     step(batch.items[range.item], range.begin, range.end, scaled);
                   });
  }
};

template <class Exec, Isa isa>
struct GradientNormEntry {
  using P = GradientNorm;
  static constexpr Kernel<P, Exec> entry() {
    return {simd_entry<isa>, reject_processor<isa, P>, gradient_norm_workspace, run};
  }

  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    auto* partial = static_cast<double*>(workspace.data);
    std::int64_t done = 0;
    const auto sum = adamw_kernels<built<isa>>(p.norm.dtype).sum_of_squares;
    for_each_batch(
        p.parameters, [](const AdamWParameter&) { return true; },
        [&](const AdamWBatch& batch) {
          for_each_piece("kformer::gradient_norm[simd]", exec, batch.pieces, 1,
                         [=, mine = partial + done](std::int64_t piece, std::int64_t) {
                           const AdamWRange range = range_of(batch, piece);
                           mine[piece] = sum(batch.items[range.item].gradient, range.begin, range.end);
                         });
          done += batch.pieces;
        });
    constexpr const char* label = "kformer::gradient_norm_sum[simd]";
    if (p.norm.dtype == DType::f64)
      gradient_norm_finish<double>(label, exec, p, partial, done);
    else
      gradient_norm_finish<float>(label, exec, p, partial, done);
  }
};

}  // namespace kformer::Impl::host
