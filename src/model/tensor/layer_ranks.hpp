// SPDX-License-Identifier: MIT
#pragma once

#include "kformer/model/decoder_layer.hpp"
#include "model/tools/module_tools.hpp"

/// \file
/// Definitions of DecoderLayer's members for ranks that divide a layer.

namespace kformer {

// Of all tokens, where ranks divide those of states; until the next call.
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::ConstMatrix DecoderLayer<Exec, T>::whole(const Exec& exec,
                                                                         const ConstMatrix& own) {
  if (!divides_states()) return own;
  tensor_ranks()->all_gather(exec, own, m_whole, "tokens");
  return m_whole;
}

// The input of a product, which backward needs for the gradient of the weight: later, if that waits.
template <class Exec, Scalar T>
typename DecoderLayer<Exec, T>::ConstMatrix DecoderLayer<Exec, T>::whole_unless_split(const Exec& exec,
                                                                                      const ConstMatrix& own) {
  return m_options.split_backward ? own : whole(exec, own);
}

// Where a product goes that is a summand on each rank.
template <class Exec, Scalar T>
const typename DecoderLayer<Exec, T>::Matrix& DecoderLayer<Exec, T>::summand(const Matrix& own) const {
  return divides_states() ? m_partial : own;
}

// The sum of all summands, of which each rank gets its tokens, or all of them.
template <class Exec, Scalar T>
void DecoderLayer<Exec, T>::add_up(const Exec& exec, const Matrix& own, const char* region) {
  Collectives<Exec>* const ranks = tensor_ranks();
  if (divides_states())
    ranks->reduce_scatter(exec, m_partial, own, region);
  else if (ranks)
    ranks->all_reduce(exec, own, region);
}

// y = residual + x Wᵀ, summed over the ranks that divide the columns of W. The first adds the residual, unless each has
// that of its own tokens.
template <class Exec, Scalar T>
template <class M>
void DecoderLayer<Exec, T>::add_product(const Exec& exec, const M& map, const Matrix& x,
                                        const ConstMatrix& residual, const Matrix& y) {
  const bool first = !tensor_ranks() || tensor_ranks()->communicator().rank() == 0;
  if (first && !divides_states())
    map.residual_forward(exec, x, residual, y);
  else
    map.forward(exec, x, {}, summand(y));
  add_up(exec, y, "activations");
  if (divides_states()) Impl::add<T>("kformer::DecoderLayer::residual", exec, y, residual);
}

}  // namespace kformer
