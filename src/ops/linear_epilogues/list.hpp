// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/linear/reference.hpp"
#include "ops/linear_epilogues/host_entries.hpp"
#include "ops/rope/reference.hpp"
#include "ops/swiglu/reference.hpp"

namespace kformer::Impl {

/// The fused kernels, or the best kernels of both parts in sequence.
template <class P, class Exec, template <class, class> class Fused>
struct EpilogueList {
  static KernelList<P, Exec> get() {
    using host::Isa;
    static constexpr std::array<Kernel<P, Exec>, 1> separate{
        {{"separate", never_rejects<P>, no_workspace<P>, List<P, Exec>::separate}}};
    static constexpr auto all = join<P, Exec>(
        host::amx_entries<Fused<Exec, host::AmxProducts>, P, Exec>(),
        SimdEntries<Entry, Isa::avx512_bf16, Isa::avx512, Isa::avx2>::template on<P, Exec>(), separate,
        SimdEntries<Entry, Isa::generic>::template on<P, Exec>(), reference_entries<P, Exec>());
    return by_speed_of_bf16_pairs<P, Exec>(all);
  }

 private:
  template <class E, host::Isa isa>
  using Entry = Fused<E, host::SimdProducts<isa>>;
};

template <class Exec>
struct List<LinearSwigluForward, Exec> : EpilogueList<LinearSwigluForward, Exec, host::LinearSwigluEntry> {
  static void separate(const Exec& exec, const LinearSwigluForward& p, const Workspace& workspace) {
    run_best(exec, p.linear(), workspace);
    run_best(exec, p.swiglu());
  }
  static void reference(const LinearSwigluForward& p) {
    const SwigluForward part = p.swiglu();
    write_tensor(reference::linear_forward<double, double>(
                     read_tensor<double>(p.x), read_tensor<double>(p.weight), {}, {}, p.options.scale),
                 p.gate_up);
    write_tensor(
        reference::swiglu_forward<double, double>(read_tensor<double>(part.gate), read_tensor<double>(part.up)),
        part.y);
  }
};

template <class Exec>
struct List<LinearRopeForward, Exec> : EpilogueList<LinearRopeForward, Exec, host::LinearRopeEntry> {
  static void separate(const Exec& exec, const LinearRopeForward& p, const Workspace& workspace) {
    run_best(exec, p.linear(), workspace);
    run_best(exec, p.rope());
  }
  static void reference(const LinearRopeForward& p) {
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
};

}  // namespace kformer::Impl
