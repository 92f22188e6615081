// SPDX-License-Identifier: MIT
// Calls of modules that must not compile, one per value of KFORMER_WRONG_PROGRAM, as in wrong_programs.cpp. Program 0 is
// right.
#include "kformer/model/decoder_layer.hpp"
#include "kformer/model/llama_model.hpp"
#include "kformer/model/multi_head_attention.hpp"
#include "kformer/model/swiglu_mlp.hpp"

using Exec = Kokkos::DefaultHostExecutionSpace;
template <class T>
using Matrix = Kokkos::View<T**, Kokkos::LayoutRight, Exec::memory_space>;

struct Mask {
  bool operator()(kformer::AttentionIndex) const { return true; }
};

void program(kformer::MultiHeadAttention<Exec, float>& attention, kformer::SwigluMlp<Exec, float>& mlp,
             kformer::DecoderLayer<Exec, float>& layer, kformer::LlamaModel<Exec, float>& model) {
  const Exec exec;
  const Matrix<float> x("x", 1, 1), y("y", 1, 1);
  const Matrix<const float> read = x;
#if KFORMER_WRONG_PROGRAM == 0
  attention.forward(exec, read, y);
  attention.forward(exec, read, read, y);
  attention.backward(exec, read, read, y, {});
  mlp.forward(exec, read, y);
  mlp.backward(exec, read, read, y, {});
  layer.forward(exec, read, y);
  layer.backward(exec, read, read, y);
  model.logits(exec, y);
#elif KFORMER_WRONG_PROGRAM == 1
  attention.forward(exec, x, read);
#elif KFORMER_WRONG_PROGRAM == 2
  attention.forward(exec, x, x, read);
#elif KFORMER_WRONG_PROGRAM == 3
  attention.backward(exec, x, y, read, {});
#elif KFORMER_WRONG_PROGRAM == 4
  mlp.forward(exec, x, read);
#elif KFORMER_WRONG_PROGRAM == 5
  mlp.backward(exec, x, y, read, {});
#elif KFORMER_WRONG_PROGRAM == 6
  layer.forward(exec, x, read);
#elif KFORMER_WRONG_PROGRAM == 7
  layer.backward(exec, x, y, read);
#elif KFORMER_WRONG_PROGRAM == 8
  model.logits(exec, read);
#elif KFORMER_WRONG_PROGRAM == 9
  attention.forward(exec, x, y, Mask());
#elif KFORMER_WRONG_PROGRAM == 10
  attention.backward(exec, {.x = x, .context = x, .dy = x, .dx = y, .dcontext = y, .gradients = {}}, Mask());
#endif
}
