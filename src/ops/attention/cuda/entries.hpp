// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>

#include "kformer/ops/attention.hpp"
#include "ops/attention/cuda/gradients.hpp"
#include "ops/attention/cuda/hopper/arguments.hpp"
#include "ops/common/cuda/device.hpp"
#include "ops/common/list.hpp"

/// \file
/// The entries of CUDA kernel lists that use tensor cores.

namespace kformer::Impl::cuda {

inline constexpr int most_features = 256, most_float_features = 128;
/// Lengths, strides of tokens and numbers of tiles are 32-bit numbers in kernels.
inline constexpr std::int64_t most_length = std::int64_t(1) << 30;

/// How many elements 16 bytes hold.
constexpr std::int64_t chunk_elements(DType dtype) { return 16 / static_cast<std::int64_t>(size_of(dtype)); }

/// Empty if the kernels can read the array 16 bytes at a time, otherwise the reason.
inline std::string chunk_refusal(const char* role, const TensorRef& x) {
  const auto refuse = [&](const std::string& why) { return role + (' ' + why); };
  const std::int64_t chunk = chunk_elements(x.dtype);
  if (reinterpret_cast<std::uintptr_t>(x.data) % 16 != 0) return refuse("is not aligned to 16 bytes");
  for (int r = 0; r < 3; ++r) {
    if (x.extent[r] <= 1) continue;
    if (x.stride[r] % chunk != 0)
      return refuse("has a stride of " + std::to_string(x.stride[r]) +
                    " elements, which is not a multiple of " + std::to_string(chunk));
    if (r > 0 && x.stride[r] > most_length) return refuse("has a stride that exceeds 32 bits");
  }
  return {};
}

/// The first refusal of operands and their roles, or nothing.
template <class Refusal>
std::string first_refusal(std::initializer_list<std::pair<const char*, const TensorRef*>> all,
                          Refusal refusal) {
  for (const auto& [role, tensor] : all)
    if (std::string why = refusal(role, *tensor); !why.empty()) return why;
  return {};
}

/// The common refusals of all kernels on tensor cores.
/// \param most  features
template <class Problem>
std::string operand_refusal(const Problem& p, std::int64_t most) {
  const AttentionExtraRefs& x = p.extras;
  if (x.bias.present() || x.alibi_slopes.present() || x.sinks.present() || x.block_mask.present())
    return "it does not support bias, ALiBi slopes, sinks or block masks";
  const std::int64_t chunk = chunk_elements(p.q.dtype);
  for (const std::int64_t d : {p.q.extent[3], p.v.extent[3]})
    if (d < chunk || d > most || d % chunk != 0)
      return "head_dim " + std::to_string(d) + " is not a multiple of " + std::to_string(chunk) + " from " +
             std::to_string(chunk) + " to " + std::to_string(most);
  if (!(attention_scale(p.options, p.q.extent[3]) > 0)) return "the scale is not positive";
  if (p.q.extent[1] > most_length || p.k.extent[1] > most_length ||
      p.q.extent[0] * p.q.extent[1] * p.q.extent[2] > most_length)
    return "lengths exceed 32 bits";
  return first_refusal({{"q", &p.q}, {"k", &p.k}, {"v", &p.v}, {"out", &p.out}}, chunk_refusal);
}

/// Empty if operands are stored as one of the types, else a sentence.
inline std::string storage_refusal(DType stored, std::initializer_list<DType> supported) {
  std::string names;
  for (const DType type : supported) {
    if (stored == type) return {};
    names += (names.empty() ? "" : " and ") + std::string(to_string(type));
  }
  return std::string("operands are stored as ") + to_string(stored) + ", but it supports only " + names;
}

/// The common refusals of both directions.
template <class Problem>
std::string tensor_core_refusal(const Problem& p) {
  if (std::string why = storage_refusal(p.q.dtype, {DType::bf16, DType::f16}); !why.empty()) return why;
  if (p.options.compute == Precision::full)
    return "it rounds attention weights to 16 bits, but compute = full was requested";
  return operand_refusal(p, most_features);
}

/// The same of floats.
template <class Problem>
std::string float_refusal(const Problem& p) {
  if (std::string why = storage_refusal(p.q.dtype, {DType::f32}); !why.empty()) return why;
  if (p.options.compute == Precision::full)
    return "it multiplies floats as two numbers of 11 digits each, but compute = full was requested";
  return operand_refusal(p, most_float_features);
}

inline std::string batch_refusal(const AttentionForward& p) {
  return p.options.batch_invariant
             ? "whether a query has the same bits in every batch has not been tested, but "
               "batch_invariant was requested"
             : "";
}
/// The common refusals of forward kernels for 16-bit operands.
inline std::string forward_refusal(const AttentionForward& p) {
  if (std::string why = batch_refusal(p); !why.empty()) return why;
  return tensor_core_refusal(p);
}

template <class Stored>
Heads<Stored> heads_of(const TensorRef& x) {
  return {static_cast<Stored*>(x.data), x.stride[0], static_cast<int>(x.stride[1]),
          static_cast<int>(x.stride[2])};
}

template <class Stored = std::uint16_t, class Problem>
AttentionArgumentsOf<Stored> attention_arguments(const Problem& p) {
  AttentionArgumentsOf<Stored> a{};
  a.q = heads_of<Stored>(p.q), a.k = heads_of<Stored>(p.k), a.v = heads_of<Stored>(p.v);
  a.out = heads_of<Stored>(p.out);
  a.lse = {static_cast<float*>(p.lse.data), p.lse.stride[0], p.lse.stride[1], p.lse.stride[2]};
  a.q_heads = static_cast<int>(p.q.extent[2]);
  a.group = p.k.extent[2] > 0 ? static_cast<int>(p.q.extent[2] / p.k.extent[2]) : 1;
  a.head_dim = static_cast<int>(p.q.extent[3]);
  a.v_head_dim = static_cast<int>(p.v.extent[3]);
  a.scale = static_cast<float>(attention_scale(p.options, p.q.extent[3]));
  a.softcap = static_cast<float>(p.options.softcap);
  a.window = static_cast<int>(std::min(p.options.window, most_length));
  a.causal = p.options.causal;
  return a;
}

template <class Problem>
Sequences sequences_of(const Problem& p) {
  const AttentionExtraRefs& x = p.extras;
  const auto starts = [](const TensorRef& t) { return static_cast<const std::int32_t*>(t.data); };
  const bool packed = x.cu_seqlens_q.present();
  return {static_cast<int>(packed ? x.cu_seqlens_q.extent[0] - 1 : p.q.extent[0]),
          static_cast<int>(p.q.extent[1]), static_cast<int>(p.k.extent[1]),
          packed ? starts(x.cu_seqlens_q) : nullptr, packed ? starts(x.cu_seqlens_kv) : nullptr};
}

inline Half half_of(DType dtype) { return dtype == DType::bf16 ? Half::bf16 : Half::f16; }

template <class Exec>
struct ForwardEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_mma", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = forward_refusal(p); !why.empty()) return why;
    return capability_refusal(80, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    announced("kformer::attention_forward[cuda_mma]", exec, [&] {
      attention_forward(Device<Exec>::stream(exec), half_of(p.q.dtype), attention_arguments(p),
                        sequences_of(p));
    });
  }
};

/// The same of floats.
template <class Exec>
struct FloatForwardEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_tf32x3", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = batch_refusal(p); !why.empty()) return why;
    if (std::string why = float_refusal(p); !why.empty()) return why;
    return capability_refusal(80, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    announced("kformer::attention_forward[cuda_tf32x3]", exec, [&] {
      attention_forward_tf32x3(Device<Exec>::stream(exec), attention_arguments<float>(p), sequences_of(p));
    });
  }
};

/// Few queries against many keys: the keys of a sequence are split into parts, as many as the problem requires,
/// which are combined in order. Needs a workspace for them.
template <class Exec>
struct DecodeEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_decode", reject, workspace_bytes, run}; }

  static std::string reject(const P& p) {
    if (std::string why = forward_refusal(p); !why.empty()) return why;
    if (const std::int64_t rows = rows_of(p); rows > most_rows)
      return std::to_string(rows) + " queries share a key head, but it supports at most " +
             std::to_string(most_rows);
    if (p.workspace_bytes < workspace_bytes(p))
      return "it needs a workspace of " + std::to_string(workspace_bytes(p)) + " bytes, " +
             std::to_string(p.workspace_bytes) + " were given";
    return capability_refusal(80, Device<Exec>::capability());
  }
  static std::size_t workspace_bytes(const P& p) {
    return static_cast<std::size_t>(partials_of(p, nullptr).bytes());
  }
  /// Enough for two blocks per multiprocessor of a large device, none of them too short. The
  /// bits of the result depend on it: it is the same on all devices.
  static int parts_of(const P& p) {
    constexpr std::int64_t enough_blocks = 264, least_keys = 128;
    const std::int64_t sequences = std::max<std::int64_t>(1, sequences_of(p).count);
    const std::int64_t blocks = sequences * std::max<std::int64_t>(1, p.k.extent[2]);
    std::int64_t keys = packed(p) ? ceil_div(p.k.extent[1], sequences) : p.k.extent[1];
    if (const std::int64_t window = std::min(p.options.window, most_length); window > 0)
      keys = std::min(keys, (p.options.causal ? window : 2 * window) + queries_of(p));
    return static_cast<int>(
        std::max<std::int64_t>(1, std::min(enough_blocks / blocks, ceil_div(keys, least_keys))));
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const int rows = rows_of(p) <= decode_rows[0] ? decode_rows[0] : most_rows;
    announced("kformer::attention_forward[cuda_decode]", exec, [&] {
      attention_decode(Device<Exec>::stream(exec), half_of(p.q.dtype), attention_arguments(p), sequences_of(p),
                       partials_of(p, workspace.data), rows);
    });
  }

 private:
  static constexpr int most_rows = decode_rows[1];

  static bool packed(const P& p) { return p.extras.cu_seqlens_q.present(); }
  /// Of a sequence; in the mean of packed ones, whose lengths are known to the device alone.
  static std::int64_t queries_of(const P& p) {
    return packed(p) ? ceil_div<std::int64_t>(p.q.extent[1], std::max(1, sequences_of(p).count))
                     : p.q.extent[1];
  }
  static std::int64_t rows_of(const P& p) {
    return std::max<std::int64_t>(1, queries_of(p)) * attention_arguments(p).group;
  }
  static Partials partials_of(const P& p, void* data) {
    return {static_cast<float*>(data), p.q.extent[0] * p.q.extent[1] * p.q.extent[2], parts_of(p),
            static_cast<int>(p.v.extent[3])};
  }
};

/// The common refusals of the operands that backward alone has.
inline std::string gradient_refusal(const AttentionBackward& p) {
  return first_refusal({{"dout", &p.dout}, {"dq", &p.dq}, {"dk", &p.dk}, {"dv", &p.dv}}, chunk_refusal);
}
/// The common refusals of kernels of backward for 16-bit operands.
inline std::string backward_refusal(const AttentionBackward& p) {
  if (std::string why = tensor_core_refusal(p); !why.empty()) return why;
  return gradient_refusal(p);
}
/// The workspace of backward: δ.
inline std::size_t backward_workspace(const AttentionBackward& p) {
  return static_cast<std::size_t>(p.lse.size()) * sizeof(float);
}
template <class Stored = std::uint16_t>
GradientArgumentsOf<Stored> gradient_arguments(const AttentionBackward& p, const Workspace& workspace) {
  GradientArgumentsOf<Stored> g{};
  g.a = attention_arguments<Stored>(p);
  g.dout = heads_of<Stored>(p.dout);
  g.dq = heads_of<Stored>(p.dq), g.dk = heads_of<Stored>(p.dk), g.dv = heads_of<Stored>(p.dv);
  g.delta = static_cast<float*>(static_cast<void*>(workspace.data));
  g.kv_heads = static_cast<int>(p.k.extent[2]);
  g.q_len = static_cast<int>(p.q.extent[1]);
  return g;
}

/// δ in the workspace, then a pass for the gradients of keys and values and one for those of queries.
template <class Exec>
struct BackwardEntry {
  using P = AttentionBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_mma", reject, backward_workspace, run}; }

  static std::string reject(const P& p) {
    if (std::string why = backward_refusal(p); !why.empty()) return why;
    return capability_refusal(80, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const GradientArguments g = gradient_arguments(p, workspace);
    announced("kformer::attention_backward[cuda_mma]", exec, [&] {
      attention_delta(Device<Exec>::stream(exec), half_of(p.q.dtype), g, sequences_of(p));
      attention_backward(Device<Exec>::stream(exec), machine_of_device(Device<Exec>::capability()),
                         half_of(p.q.dtype), g, sequences_of(p));
    });
  }
};

/// The same of floats.
template <class Exec>
struct FloatBackwardEntry {
  using P = AttentionBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_tf32x3", reject, backward_workspace, run}; }

  static std::string reject(const P& p) {
    if (std::string why = float_refusal(p); !why.empty()) return why;
    if (std::string why = gradient_refusal(p); !why.empty()) return why;
    return capability_refusal(80, Device<Exec>::capability());
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const auto g = gradient_arguments<float>(p, workspace);
    announced("kformer::attention_backward[cuda_tf32x3]", exec, [&] {
      attention_delta(Device<Exec>::stream(exec), g, sequences_of(p));
      attention_backward_tf32x3(Device<Exec>::stream(exec), machine_of_device(Device<Exec>::capability()), g,
                                sequences_of(p));
    });
  }
};

/// Empty if tiles of the array can be copied, else a sentence.
inline std::string tile_refusal(const char* role, const TensorRef& x) {
  for (int r = 0; r < 3; ++r) {
    if (x.extent[r] == 0) return role + std::string(" is empty");
    if (x.extent[r] > 1 && (x.stride[r] <= 0 || x.stride[r] >= std::int64_t(1) << 39))
      return role + std::string(" has a stride of ") + std::to_string(x.stride[r]) +
             " elements, which tile copies do not support";
  }
  return {};
}

inline TensorShape tensor_shape(const TensorRef& x) {
  TensorShape shape{x.data, {}, {}, {}};
  const int dimension[4] = {3, 1, 2, 0};
  for (int i = 0; i < 4; ++i) {
    const int r = dimension[i];
    shape.extent[i] = static_cast<std::uint64_t>(x.extent[r]);
    // The stride of a dimension of one may be anything.
    shape.stride_bytes[i] = x.extent[r] > 1 ? 2 * static_cast<std::uint64_t>(x.stride[r]) : 16;
  }
  return shape;
}

/// Empty if both are the same and one of the supported head dimensions, else a sentence.
template <int... supported>
std::string features_refusal(FeatureList<supported...>, std::int64_t d, std::int64_t v_d) {
  if (d == v_d && ((d == supported) || ...)) return {};
  std::string names;
  ((names += (names.empty() ? "" : ", ") + std::to_string(supported)), ...);
  return "head_dim and v_head_dim are " + std::to_string(d) + " and " + std::to_string(v_d) +
         ", but it supports only equal ones out of " + names;
}

/// The common refusals of kernels of warpgroups: of head dimensions and of the arrays whose tiles are copied.
template <class Exec, class Features>
std::string warpgroup_refusal(Features supported, const TensorRef& q, const TensorRef& v,
                              std::initializer_list<std::pair<const char*, const TensorRef*>> copied) {
  if (std::string why = features_refusal(supported, q.extent[3], v.extent[3]); !why.empty()) return why;
  if (std::string why = first_refusal(copied, tile_refusal); !why.empty()) return why;
  const int capability = Device<Exec>::capability();
  if (std::string why = capability_refusal(90, capability); !why.empty()) return why;
  // Emulated blocks have every capability.
  if (!is_host_space<Exec> && capability >= 100)
    return "it is compiled only for compute capability 9.0, but this device is newer";
  return {};
}

/// For sm_90a.
template <class Exec>
struct WarpgroupForwardEntry {
  using P = AttentionForward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_wgmma", reject, no_workspace<P>, run}; }

  static std::string reject(const P& p) {
    if (std::string why = forward_refusal(p); !why.empty()) return why;
    return warpgroup_refusal<Exec>(WarpgroupForwardFeatures(), p.q, p.v,
                                   {{"q", &p.q}, {"k", &p.k}, {"v", &p.v}});
  }
  static void run(const Exec& exec, const P& p, const Workspace&) {
    announced("kformer::attention_forward[cuda_wgmma]", exec, [&] {
      attention_forward_wgmma(Device<Exec>::stream(exec), Device<Exec>::multiprocessors(), half_of(p.q.dtype),
                              attention_arguments(p), {tensor_shape(p.q), tensor_shape(p.k), tensor_shape(p.v)},
                              sequences_of(p));
    });
  }
};

/// For sm_90a: the passes of `BackwardEntry`.
template <class Exec>
struct WarpgroupBackwardEntry {
  using P = AttentionBackward;
  static constexpr Kernel<P, Exec> entry() { return {"cuda_wgmma", reject, backward_workspace, run}; }

  static std::string reject(const P& p) {
    if (std::string why = backward_refusal(p); !why.empty()) return why;
    if (p.options.softcap > 0) return "it does not support a soft cap";
    return warpgroup_refusal<Exec>(WarpgroupBackwardFeatures(), p.q, p.v,
                                   {{"q", &p.q}, {"k", &p.k}, {"v", &p.v}, {"dout", &p.dout}});
  }
  static void run(const Exec& exec, const P& p, const Workspace& workspace) {
    const GradientArguments g = gradient_arguments(p, workspace);
    announced("kformer::attention_backward[cuda_wgmma]", exec, [&] {
      attention_delta(Device<Exec>::stream(exec), half_of(p.q.dtype), g, sequences_of(p));
      attention_backward_wgmma(Device<Exec>::stream(exec), half_of(p.q.dtype), g,
                               {tensor_shape(p.q), tensor_shape(p.k), tensor_shape(p.v), tensor_shape(p.dout)},
                               sequences_of(p));
    });
  }
};

}  // namespace kformer::Impl::cuda

#if defined(KOKKOS_ENABLE_CUDA)
namespace kformer::Impl {

template <>
struct DeviceEntries<AttentionForward, Kokkos::Cuda> {
  static constexpr std::array all{cuda::DecodeEntry<Kokkos::Cuda>::entry(),
#if defined(KFORMER_ENABLE_HOPPER)
                                  cuda::WarpgroupForwardEntry<Kokkos::Cuda>::entry(),
#endif
                                  cuda::ForwardEntry<Kokkos::Cuda>::entry(),
                                  cuda::FloatForwardEntry<Kokkos::Cuda>::entry()};
};
template <>
struct DeviceEntries<AttentionBackward, Kokkos::Cuda> {
  static constexpr std::array all{
#if defined(KFORMER_ENABLE_HOPPER)
      cuda::WarpgroupBackwardEntry<Kokkos::Cuda>::entry(),
#endif
      cuda::BackwardEntry<Kokkos::Cuda>::entry(), cuda::FloatBackwardEntry<Kokkos::Cuda>::entry()};
};

}  // namespace kformer::Impl
#endif
