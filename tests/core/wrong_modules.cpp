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
template <class T>
using Vector = Kokkos::View<T*, Exec::memory_space>;

struct Mask {
  bool operator()(kformer::AttentionIndex) const { return true; }
};

void program(kformer::MultiHeadAttention<Exec, float>& attention, kformer::SwigluMlp<Exec, float>& mlp,
             kformer::DecoderLayer<Exec, float>& layer, kformer::LlamaModel<Exec, float>& model,
             kformer::MultiHeadAttention<Exec, kformer::bf16>& half, kformer::Ledger& ledger) {
  const Exec exec;
  const Matrix<float> x("x", 1, 1), y("y", 1, 1);
  const Matrix<const float> read = x;
  const Matrix<double> wide("wide", 1, 1);
  const Matrix<kformer::bf16> narrow("narrow", 1, 1);
  const Vector<float> numbers("numbers", 1);
  const Vector<std::int32_t> ids("ids", 1);
  const Vector<std::int64_t> long_ids("long_ids", 1);
  const Kokkos::View<float****, Exec::memory_space> heads("heads", 1, 1, 1, 1);
  const Kokkos::View<float***, Exec::memory_space> lse("lse", 1, 1, 1);
  const Vector<std::byte> workspace("workspace", 64);
#if KFORMER_WRONG_PROGRAM == 0
  attention.forward(exec, read, y);
  attention.forward(exec, read, read, y);
  attention.backward(exec, read, read, y, {});
  attention.backward(exec, read, read, y, {.q = x, .k = x, .v = x, .o = x, .q_bias = numbers});
  attention.backward(exec, {.x = x, .context = x, .dy = x, .dx = y, .dcontext = y, .gradients = {}});
  half.backward(exec, narrow, narrow, narrow, {.q = x, .k = x, .v = x, .o = x});
  kformer::MultiHeadAttention<Exec, float>({}, {1, 1}, {}, ledger);
  kformer::MultiHeadAttention<Exec, float>({}, {1, 1}, {.q = x, .k = x, .v = x, .o = x}, ledger);
  mlp.forward(exec, read, y);
  mlp.backward(exec, read, read, y, {});
  mlp.backward(exec, read, read, y, {.gate = x, .up = x, .down = x});
  kformer::SwigluMlp<Exec, float>({}, 1, {.gate = x, .up = x, .down = x}, ledger);
  layer.forward(exec, read, y);
  layer.forward(exec, read, y, {});
  layer.backward(exec, read, read, y);
  model.forward(exec, ids);
  model.forward_embedded(exec, read);
  model.logits(exec, y);
  model.logits(exec, 0, y);
  model.loss(exec, ids, numbers);
  model.backward(exec, ids, ids, numbers, numbers, {});
  model.backward_embedded(exec, ids, numbers, numbers, y);
  kformer::attention_forward(exec, heads, heads, heads, heads, lse, {}, {}, workspace);
  kformer::attention_backward(
      exec, kformer::AttentionBackwardOperands{heads, heads, heads, heads, lse, heads, heads, heads, heads}, {},
      {}, {}, workspace);
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
#elif KFORMER_WRONG_PROGRAM == 11
  attention.forward(exec, wide, y);
#elif KFORMER_WRONG_PROGRAM == 12
  attention.forward(exec, numbers, y);
#elif KFORMER_WRONG_PROGRAM == 13
  attention.forward(exec, x, wide, y);
#elif KFORMER_WRONG_PROGRAM == 14
  attention.backward(exec, x, wide, y, {});
#elif KFORMER_WRONG_PROGRAM == 15
  attention.backward(exec, {.x = x, .context = x, .dy = x, .dx = y, .dcontext = wide, .gradients = {}});
#elif KFORMER_WRONG_PROGRAM == 16
  half.backward(exec, narrow, narrow, narrow, {.q = x, .k = narrow, .v = x, .o = x});
#elif KFORMER_WRONG_PROGRAM == 17
  attention.backward(exec, x, x, y, {.q = read, .k = x, .v = x, .o = x});
#elif KFORMER_WRONG_PROGRAM == 18
  attention.backward(exec, x, x, y, {.q = x, .k = x, .v = x, .o = x, .q_bias = x});
#elif KFORMER_WRONG_PROGRAM == 19
  kformer::MultiHeadAttention<Exec, float>({}, {1, 1}, {.q = wide, .k = x, .v = x, .o = x}, ledger);
#elif KFORMER_WRONG_PROGRAM == 20
  kformer::MultiHeadAttention<Exec, float>({}, {1, 1}, {.q = x, .k = x, .v = x, .o = x, .q_bias = x}, ledger);
#elif KFORMER_WRONG_PROGRAM == 21
  mlp.backward(exec, x, x, y, {.gate = x, .up = wide, .down = x});
#elif KFORMER_WRONG_PROGRAM == 22
  kformer::SwigluMlp<Exec, float>({}, 1, {.gate = x, .up = wide, .down = x}, ledger);
#elif KFORMER_WRONG_PROGRAM == 23
  layer.forward(exec, wide, y);
#elif KFORMER_WRONG_PROGRAM == 24
  layer.backward(exec, x, wide, y);
#elif KFORMER_WRONG_PROGRAM == 25
  model.forward(exec, numbers);
#elif KFORMER_WRONG_PROGRAM == 26
  model.forward(exec, long_ids);
#elif KFORMER_WRONG_PROGRAM == 27
  model.forward_embedded(exec, wide);
#elif KFORMER_WRONG_PROGRAM == 28
  model.loss(exec, long_ids, numbers);
#elif KFORMER_WRONG_PROGRAM == 29
  model.loss(exec, ids, x);
#elif KFORMER_WRONG_PROGRAM == 30
  model.backward(exec, ids, ids, ids, numbers);
#elif KFORMER_WRONG_PROGRAM == 31
  kformer::attention_forward(exec, heads, heads, heads, heads, lse, {}, workspace);
#elif KFORMER_WRONG_PROGRAM == 32
  kformer::attention_backward(
      exec, kformer::AttentionBackwardOperands{heads, heads, heads, heads, lse, heads, heads, heads, heads}, {},
      {}, workspace);
#endif
}
