// SPDX-License-Identifier: MIT
#pragma once

#include <string>

#include "kformer/core/region.hpp"
#include "kformer/model/decoder_layer.hpp"
#include "kformer/ops/swiglu.hpp"
#include "model/layer_map.hpp"
#include "model/tools/memory.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of DecoderLayer's members that make the gradients of weights after those of activations.

namespace kformer {

// The gradient of x, and without `backward_weights` those of the weight or of the adapters.
template <class Exec, Scalar T>
template <class M>
void DecoderLayer<Exec, T>::reverse_product(const Exec& exec, const M& map, const ConstMatrix& x,
                                            const ConstMatrix& dy, const Matrix& dx) const {
  if (m_options.split_backward)
    map.backward_input(exec, dy, dx);
  else
    map.backward(exec, x, dy, dx);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::backward_weights(const Exec& exec, const ConstMatrix& x) {
  m_guard.require("DecoderLayer", "backward_weights");
  bool& wait = m_passes[m_slot].weights_wait;
  if (!wait)
    throw NotSupported(std::string("kformer::DecoderLayer::backward_weights: ") +
                       (m_options.split_backward
                            ? "each backward allows one backward_weights; call forward and backward first"
                            : "backward has made these gradients; set LayerOptions::split_backward"));
  Impl::require_arrays("DecoderLayer::backward_weights", {{"x", tensor_ref(x)}},
                       {state_rows(), m_config.hidden_size});
  wait = false;
  // Other layers may have used their arrays since `backward`.
  if (!m_options.accumulate) clear_gradients(exec);
  if (puts_off_vectors()) add_vectors(exec);
  if (!keeps_pointwise()) restore_product(exec);
  down_map().backward_weight(exec, m_product, whole(exec, m_dy));
  if (!keeps_pointwise()) normalise(exec, mlp_norm(), m_h);
  gate_up_map().backward_weight(exec, whole(exec, m_normed2), m_d_gate_up);
  out_map().backward_weight(exec, m_attention, whole(exec, m_dh));
  if (!keeps_pointwise()) normalise(exec, attention_norm(), x);
  qkv_map().backward_weight(exec, whole(exec, m_normed1), m_d_qkv);
}

// Those of a micro-batch that begins its backward.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::clear_vectors(const Exec& exec) {
  // Has a name because nvcc 13.0 loses the braces of a list of Views in the head of a loop.
  const Vector all[] = {m_vectors.norm1, m_vectors.norm2, m_vectors.q_norm, m_vectors.k_norm, m_vectors.bias};
  for (const Vector& v : all) Kokkos::deep_copy(exec, v, C(0));
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::add_vectors(const Exec& exec) {
  const auto add = [&](const Vector& to, const Vector& from) {
    Impl::add_numbers("DecoderLayer::backward_weights", exec, to, from);
  };
  add(m_gradient.norm1, m_vectors.norm1);
  add(m_gradient.norm2, m_vectors.norm2);
  add(m_gradient.q_norm, m_vectors.q_norm);
  add(m_gradient.k_norm, m_vectors.k_norm);
  add(m_gradient.bias, m_vectors.bias);
}

template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::restore_product(const Exec& exec) {
  Region region("swiglu");
  swiglu_forward(exec, Impl::gate_half(m_gate_up), Impl::up_half(m_gate_up), m_product);
}

}  // namespace kformer
