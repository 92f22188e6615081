// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/linear/reference.hpp"
#include "ops/linear_epilogues/host_entries.hpp"
#include "ops/rope/reference.hpp"
#include "ops/swiglu/reference.hpp"

namespace kformer::Impl {

inline void run_parts_in_order(const LinearSwigluForward& p) {
  const SwigluForward part = p.swiglu();
  write_tensor(reference::linear_forward<double, double>(
                   read_tensor<double>(p.x), read_tensor<double>(p.weight), {}, {}, p.options.scale),
               p.gate_up);
  write_tensor(
      reference::swiglu_forward<double, double>(read_tensor<double>(part.gate), read_tensor<double>(part.up)),
      part.y);
}

inline void run_parts_in_order(const LinearRopeForward& p) {
  const RopeForward part = p.rope();
  write_tensor(
      reference::linear_forward<double, double>(read_tensor<double>(p.x), read_tensor<double>(p.weight),
                                                read_tensor<double>(p.bias), {}, p.options.linear.scale),
      p.y);
  write_tensor(reference::rope_rotate<double, double>(
                   read_tensor<double>(part.q), read_tensor<double>(part.cos), read_tensor<double>(part.sin),
                   {}, part.first_position, part.layout, +1),
               part.q);
}

/// The fused kernels, or the best kernels of both parts in sequence.
template <class P, class Exec, template <class, host::Isa> class Fused>
struct EpilogueList {
  static KernelList<P, Exec> get() {
    static constexpr Kernel<P, Exec> separate{"separate", never_rejects<P>, no_workspace<P>, separate_entry};
    if constexpr (is_host_space<Exec>) {
      static constexpr std::array<Kernel<P, Exec>, 6> all{{
          Fused<Exec, host::Isa::avx512_bf16>::entry(),
          Fused<Exec, host::Isa::avx512>::entry(),
          Fused<Exec, host::Isa::avx2>::entry(),
          separate,
          Fused<Exec, host::Isa::generic>::entry(),
          {"reference", never_rejects<P>, no_workspace<P>, reference_entry},
      }};
      return all;
    } else {
      static constexpr std::array<Kernel<P, Exec>, 1> all{separate};
      return all;
    }
  }
  static void separate_entry(const Exec& exec, const P& p, const Workspace& workspace) {
    run_best(exec, p.linear(), workspace);
    if constexpr (std::is_same_v<P, LinearSwigluForward>)
      run_best(exec, p.swiglu());
    else
      run_best(exec, p.rope());
  }
  static void reference_entry(const Exec& exec, const P& p, const Workspace&) {
    run_on_host(exec, label<P>("reference").c_str(), [p] { run_parts_in_order(p); });
  }
};

template <class Exec>
struct List<LinearSwigluForward, Exec> : EpilogueList<LinearSwigluForward, Exec, host::LinearSwigluEntry> {};
template <class Exec>
struct List<LinearRopeForward, Exec> : EpilogueList<LinearRopeForward, Exec, host::LinearRopeEntry> {};

}  // namespace kformer::Impl
