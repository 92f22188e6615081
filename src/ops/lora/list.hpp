// SPDX-License-Identifier: MIT
#pragma once

#include "ops/common/list.hpp"
#include "ops/lora/host/entries.hpp"
#include "ops/lora/reference.hpp"

namespace kformer::Impl {

/// The library of the device, our own SIMD kernels on hosts, and the portable product with the terms of a second
/// one.
template <class P, class Exec>
struct LoraList {
  static KernelList<P, Exec> get() {
    using host::Isa;
    static constexpr std::array<Kernel<P, Exec>, 1> portable{
        {{"kokkos", never_rejects<P>, no_workspace<P>, kokkos}}};
    static constexpr auto all = join<P, Exec>(
        DeviceEntries<P, Exec>::all, host::amx_entries<host::LoraEntry<P, Exec, host::AmxProducts>, P, Exec>(),
        SimdEntries<Entry, Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::generic>::template on<P, Exec>(),
        portable, reference_entries<P, Exec>());
    return by_speed_of_bf16_pairs<P, Exec>(all);
  }
  static void kokkos(const Exec& exec, const P& p, const Workspace&) {
    with_lora_products(p, [&](const auto& all) {
      for (std::size_t i = 0; i < all.low_count; ++i) matmul(label<P>("kokkos"), exec, all.low[i]);
      for (std::size_t i = 0; i < all.full_count; ++i) matmul(label<P>("kokkos"), exec, all.full[i]);
    });
  }

 private:
  template <class E, host::Isa isa>
  using Entry = host::LoraEntry<P, E, host::SimdProducts<isa>>;
};

template <class Real>
std::vector<reference::LoraTensors<Real>> lora_tensors(const LoraFactors& parts) {
  std::vector<reference::LoraTensors<Real>> all;
  for (const LoraFactor& part : parts)
    all.push_back({read_tensor<Real>(part.b), part.column, static_cast<Real>(part.scale)});
  return all;
}

template <class Exec>
struct List<LoraForward, Exec> : LoraList<LoraForward, Exec> {
  static void reference(const LoraForward& p) {
    const auto r = reference::lora_forward<double, double>(
        read_tensor<double>(p.x), read_tensor<double>(p.weight), read_tensor<double>(p.bias),
        read_tensor<double>(p.residual), read_tensor<double>(p.a), lora_tensors<double>(p.parts));
    write_tensor(r.low, p.xa);
    write_tensor(r.full, p.y);
  }
};

template <class Exec>
struct List<LoraBackwardInput, Exec> : LoraList<LoraBackwardInput, Exec> {
  static void reference(const LoraBackwardInput& p) {
    const auto r = reference::lora_backward_input<double, double>(
        read_tensor<double>(p.weight), read_tensor<double>(p.a), lora_tensors<double>(p.parts),
        read_tensor<double>(p.dy));
    auto dx = r.full;
    const auto addend = read_tensor<double>(p.addend);
    if (addend.present())
      for (std::size_t i = 0; i < dx.values().size(); ++i) dx.values()[i] += addend.values()[i];
    write_tensor(r.low, p.dxa);
    write_tensor(dx, p.dx);
  }
};

}  // namespace kformer::Impl
