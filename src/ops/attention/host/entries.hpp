// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/ops/impl/flash_backward.hpp"
#include "ops/attention/host/isa.hpp"
#include "ops/attention/host/launch.hpp"

/// \file
/// The entries of host kernel lists that run SIMD kernels.

namespace kformer::Impl::host {

/// The rows of a tile: as many as the kernel can use, but few enough that 64 tiles exist. Depends on the
/// problem alone, as the bits of the result may.
template <class Problem>
std::int64_t forward_rows(const Problem& p, const Arguments& a, const AttentionKernels& kernels) {
  constexpr std::int64_t enough_tiles = 64;
  const std::int64_t rows = p.q.extent[0] * p.q.extent[1] * a.q_heads, step = kernels.panel_rows;
  const std::int64_t wanted = ceil_div(ceil_div(rows, enough_tiles), step) * step;
  return std::clamp<std::int64_t>(wanted, step, kernels.forward_rows(a));
}

template <class Exec, Isa isa>
struct ForwardEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = attention_refusal<isa>(p); !why.empty()) return why;
    return too_big<Exec>(kernels_of<isa>(p.q.dtype).forward_scratch(arguments_of(p)));
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    const Arguments a = arguments_of(p);
    const AttentionKernels& kernels = kernels_of<isa>(p.q.dtype);
    const Tiling tiling(p, a.group, forward_rows(p, a, kernels));
    for_each_tile("kformer::attention_forward[simd]", exec, tiling.tiles() * a.kv_heads,
                  kernels.forward_scratch(a), [=, run = kernels.forward](std::int64_t rank, void* scratch) {
                    // The last queries see the most keys: they come first.
                    const auto tile = tiling.find(tiling.tiles() - 1 - rank / a.kv_heads);
                    run(a, tile.sequence, tiling.range(tile, rank % a.kv_heads), scratch);
                  });
  }
};

/// Few queries against many keys: the keys are split into parts of a fixed length, whose results are combined
/// in order. Needs a workspace for them.
template <class Exec, Isa isa>
struct DecodeEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {decode_entry<isa>, reject, workspace_bytes, run}; }

  static std::string reject(const P& p) {
    if (std::string why = attention_refusal<isa>(p); !why.empty()) return why;
    if (p.options.batch_invariant) return "it sums parts of the keys, but batch_invariant was requested";
    if (p.functor) return "it does not call functors";
    const Arguments a = arguments_of(p);
    const AttentionKernels& kernels = kernels_of<isa>(p.q.dtype);
    const std::int64_t rows = most_rows(p, a, kernels);
    if (rows > kernels.decode_rows)
      return std::to_string(rows) + " queries share a key head, but it supports at most " +
             std::to_string(kernels.decode_rows);
    if (p.workspace_bytes < workspace_bytes(p))
      return "it needs a workspace of " + std::to_string(workspace_bytes(p)) + " bytes, " +
             std::to_string(p.workspace_bytes) + " were given";
    return too_big<Exec>(kernels.decode_scratch(a, static_cast<int>(rows)));
  }
  static std::size_t workspace_bytes(const P& p) {
    const Arguments a = arguments_of(p);
    const std::int64_t parts = parts_of(p, a, kernels_of<isa>(p.q.dtype), nullptr).count;
    return static_cast<std::size_t>(p.lse.size() * parts * (a.v_head_dim + 2)) *
           size_of(compute_dtype(p.q.dtype));
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const Arguments a = arguments_of(p);
    if (a.kv_heads == 0) return;  // the tiles would have no rows
    const AttentionKernels& kernels = kernels_of<isa>(p.q.dtype);
    const Tiling tiling = tiling_of(p, a, kernels);
    const Parts parts = parts_of(p, a, kernels, workspace.data);
    const std::size_t scratch_bytes = kernels.decode_scratch(a, static_cast<int>(most_rows(p, a, kernels)));
    const std::int64_t part_keys = kernels.decode_part;
    for_each_tile("kformer::attention_forward_part[simd]", exec, tiling.tiles() * parts.count, scratch_bytes,
                  [=, run = kernels.decode](std::int64_t rank, void* scratch) {
                    const auto tile = tiling.find(rank / parts.count);
                    if (rank % parts.count * part_keys < tile.sequence.kv_len)
                      run(a, parts, tile.sequence, rank % parts.count, scratch);
                  });
    for_each_tile("kformer::attention_forward_combine[simd]", exec, tiling.tiles() * a.kv_heads, scratch_bytes,
                  [=, run = kernels.combine](std::int64_t rank, void* scratch) {
                    const auto tile = tiling.find(rank / a.kv_heads);
                    run(a, parts, tile.sequence, tiling.range(tile, rank % a.kv_heads), scratch);
                  });
  }

 private:
  static Tiling tiling_of(const P& p, const Arguments& a, const AttentionKernels& kernels) {
    return Tiling(p, a.group, kernels.decode_rows);
  }
  /// That share a key head.
  static std::int64_t most_rows(const P& p, const Arguments& a, const AttentionKernels& kernels) {
    std::int64_t rows = 0;
    tiling_of(p, a, kernels).for_each_kind([&](const Sequence& s) {
      rows = std::max(rows, s.q_len * a.group);
    });
    return rows;
  }
  static Parts parts_of(const P& p, const Arguments& a, const AttentionKernels& kernels, void* data) {
    std::int64_t keys = 0;
    tiling_of(p, a, kernels).for_each_kind([&](const Sequence& s) { keys = std::max(keys, s.kv_len); });
    return {data, p.q.extent[1], ceil_div<std::int64_t>(keys, kernels.decode_part)};
  }
};

/// Where the gradients of a problem are summed: in place, or in the workspace where 16 bits would not hold a
/// sum.
struct Sums {
  HeadArray dq, dk, dv;
  std::size_t bytes;  // of workspace, delta included
  void* delta;
};

inline Sums sums_of(const AttentionBackward& p, void* workspace) {
  const std::size_t size = size_of(compute_dtype(p.q.dtype));
  std::size_t bytes = 0;
  const auto take = [&](std::int64_t count) {
    bytes = (bytes + 63) / 64 * 64;
    void* here = static_cast<char*>(workspace) + bytes;
    bytes += static_cast<std::size_t>(count) * size;
    return here;
  };
  Sums sums{heads_of(p.dq), heads_of(p.dk), heads_of(p.dv), 0, take(p.lse.size())};
  if (size != size_of(p.q.dtype)) {
    const auto dense = [&](const TensorRef& x) {
      const std::int64_t token = x.extent[2] * x.extent[3];
      return HeadArray{take(x.size()), x.extent[1] * token, token, x.extent[3]};
    };
    sums.dq = dense(p.dq);
    sums.dk = dense(p.dk);
    sums.dv = dense(p.dv);
  }
  sums.bytes = bytes;
  return sums;
}

/// `f(batch, token, head)` for every row of a tensor.
template <class Exec, class F>
void for_each_row(const char* label, const Exec& exec, const TensorRef& x, F f) {
  const std::int64_t tokens = x.extent[1], heads = x.extent[2];
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(exec, 0, x.extent[0] * tokens * heads),
                       [=](std::int64_t row) { f(row / heads / tokens, row / heads % tokens, row % heads); });
}

template <class Exec, Isa isa>
struct BackwardEntry {
  using P = AttentionBackward;
  static constexpr Kernel<P, Exec> entry() { return {simd_entry<isa>, reject, workspace_bytes, run}; }

  static std::string reject(const P& p) {
    if (std::string why = attention_refusal<isa>(p); !why.empty()) return why;
    if (p.functor && p.functor->wants_gradients) return "it does not call `gradient` of a functor";
    if (p.functor && p.gradients.dbias.present()) return "it has no gradient of a bias beside a functor";
    return too_big<Exec>(kernels_of<isa>(p.q.dtype).backward_scratch(arguments_of(p)));
  }
  static std::size_t workspace_bytes(const P& p) { return sums_of(p, nullptr).bytes; }

  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    dispatch_dtype(p.q.dtype, [&]<class T>(std::type_identity<T>) { run_typed<T>(exec, p, workspace); });
  }

 private:
  template <class T>
  static void run_typed(const Exec& exec, const P& p, const Workspace& workspace) {
    using C = compute_t<T>;
    const Sums sums = sums_of(p, workspace.data);
    clear<C>(exec, p.dq, sums.dq);
    clear<C>(exec, p.dk, sums.dk);
    clear<C>(exec, p.dv, sums.dv);
    sum(exec, p, sums);
    extra_gradients<T>(exec, p, static_cast<const C*>(sums.delta));
    if constexpr (!std::is_same_v<C, T>) {
      round<T>(exec, p.dq, sums.dq);
      round<T>(exec, p.dk, sums.dk);
      round<T>(exec, p.dv, sums.dv);
    }
  }

  // The gradients of bias and sinks have separate portable kernels.
  template <class T>
  static void extra_gradients(const Exec& exec, const P& p, const compute_t<T>* delta) {
    if (p.gradients.dbias.present()) {
      const auto problem = flash_problem<T>(p, extra_scores<T>(p.options, p.extras));
      const FlashGradient<T, ExtraScores<T>> g{problem, Impl::heads_of<const T>(p.dout),
                                               p.lse.template as<const compute_t<T>, 3>(), delta};
      flash_bias_gradient(exec, g, p.gradients.dbias);
    }
    if (p.gradients.dsinks.present()) flash_sink_gradient<T>(exec, p, delta);
  }

  template <class C>
  static void clear(const Exec& exec, const TensorRef& x, const HeadArray& sum) {
    const std::int64_t dim = x.extent[3];
    for_each_row("kformer::attention_backward_clear[simd]", exec, x,
                 [=](std::int64_t b, std::int64_t i, std::int64_t h) {
                   C* to = static_cast<C*>(sum.data) + b * sum.batch_stride + i * sum.token_stride +
                           h * sum.head_stride;
                   for (std::int64_t d = 0; d < dim; ++d) to[d] = C(0);
                 });
  }
  template <class T>
  static void round(const Exec& exec, const TensorRef& x, const HeadArray& sum) {
    using C = compute_t<T>;
    const auto to = x.as<T, 4>();
    for_each_row("kformer::attention_backward_round[simd]", exec, x,
                 [=](std::int64_t b, std::int64_t i, std::int64_t h) {
                   const C* from = static_cast<const C*>(sum.data) + b * sum.batch_stride +
                                   i * sum.token_stride + h * sum.head_stride;
                   T* row = &to(b, i, h, std::int64_t(0));
                   for (std::int64_t d = 0; d < to.extent[3]; ++d) row[d] = T(from[d]);
                 });
  }

  // Rows meet keys in steps. In one step tile i of the rows meets tile (step − i) mod n of the keys: no two
  // teams add to the same sums, and each sum is made in the same order whatever the number of threads. On the
  // antidiagonals a causal mask leaves as much work to every step.
  static void sum(const Exec& exec, const P& p, const Sums& sums) {
    const Arguments a = arguments_of(p);
    const GradientArguments g{heads_of(p.dout), sums.dq, sums.dk, sums.dv, sums.delta, p.lse.extent[2]};
    const AttentionKernels& kernels = kernels_of<isa>(p.q.dtype);
    const std::int64_t parts = parts_of(p, a);
    const auto part = [&](std::int64_t length, std::int64_t step) {
      return std::max(step, ceil_div(ceil_div(length, parts), step) * step);
    };
    const std::int64_t keys = part(p.k.extent[1], kernels.backward_keys);
    const Tiling tiling(p, a.group, part(p.q.extent[1] * a.group, kernels.backward_rows));
    const auto steps_of = [=](const Sequence& s) {
      return std::max(tiling.tiles_of(s), ceil_div(s.kv_len, keys));
    };
    std::int64_t steps = 0;
    tiling.for_each_kind([&](const Sequence& s) { steps = std::max(steps, steps_of(s)); });
    const std::size_t scratch_bytes = kernels.backward_scratch(a);
    for_each_tile("kformer::attention_backward_delta[simd]", exec, tiling.tiles() * a.kv_heads, scratch_bytes,
                  [=, run = kernels.delta](std::int64_t rank, void* scratch) {
                    const auto tile = tiling.find(rank / a.kv_heads);
                    run(a, g, tile.sequence, tiling.range(tile, rank % a.kv_heads), scratch);
                  });
    for (std::int64_t step = 0; step < steps; ++step)
      for_each_tile("kformer::attention_backward[simd]", exec, tiling.tiles() * a.kv_heads, scratch_bytes,
                    [=, run = kernels.backward](std::int64_t rank, void* scratch) {
                      // The last queries see the most keys: they come first.
                      const auto tile = tiling.find(tiling.tiles() - 1 - rank / a.kv_heads);
                      const std::int64_t all = steps_of(tile.sequence);
                      if (step >= all) return;
                      const std::int64_t first = (step - tile.number + all) % all * keys;
                      const std::int64_t left = tile.sequence.kv_len - first;
                      if (left > 0)
                        run(a, g, tile.sequence, tiling.range(tile, rank % a.kv_heads), first,
                            std::min(keys, left), scratch);
                    });
  }

  // Into how many parts queries and keys are cut: few parts reuse what caches hold, many keep more threads
  // busy. Parts are shorter where few teams could not share the work evenly. Depends on the problem alone, as the
  // bits of the result do.
  static std::int64_t parts_of(const P& p, const Arguments& a) {
    constexpr std::int64_t enough_teams = 64, length_of_many = 384, few_teams = 12, length_of_few = 128;
    const std::int64_t teams = std::max<std::int64_t>(1, p.q.extent[0] * a.kv_heads);
    const std::int64_t length = std::max(p.q.extent[1], p.k.extent[1]);
    const std::int64_t parts =
        std::clamp<std::int64_t>(length / length_of_many, 1, ceil_div(enough_teams, teams));
    return std::max(parts, std::min(length / length_of_few, ceil_div(few_teams, teams)));
  }
};

}  // namespace kformer::Impl::host
