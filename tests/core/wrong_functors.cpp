// SPDX-License-Identifier: MIT
// Attention functors that must not compile, one per value of KFORMER_WRONG_PROGRAM, as in wrong_programs.cpp. The
// functors of program 0 are right.
#include "kformer/ops/attention_functors.hpp"

using kformer::AttentionIndex, kformer::AttentionRows, kformer::KeyRange;
using Heads = Kokkos::View<float****, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Tokens = Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::HostSpace>;
using Bytes = Kokkos::View<std::byte*, Kokkos::HostSpace>;
using Exec = Kokkos::DefaultHostExecutionSpace;

struct Mask {
  bool operator()(AttentionIndex) const { return true; }
};
struct Range {
  KeyRange keys(AttentionRows) const { return {0, 1}; }
};
struct Score {
  float operator()(float score, AttentionIndex) const { return score; }
};
struct Slope : Score {
  float derivative(float, AttentionIndex) const { return 1; }
  void gradient(float, float, AttentionIndex) const {}
};

struct Nothing {};
struct ChangingMask {
  bool operator()(AttentionIndex) { return true; }
};
struct RangeOfNumbers {
  int keys(AttentionRows) const { return 0; }
};
struct SlopeWithoutIndex : Score {
  float derivative(float) const { return 1; }
};
struct ReturnedGradient : Score {
  float gradient(float, float, AttentionIndex) const { return 0; }
};
struct GradientOfAMask : Mask {
  void gradient(float, float, AttentionIndex) const {}
};

struct DerivativeOfAMask : Mask {
  float derivative(float, AttentionIndex) const { return 1; }
};

struct ScoreInDouble {
  double operator()(float score, AttentionIndex) const { return score + 0.5; }
};
struct SlopeInDouble : Score {
  double derivative(double, AttentionIndex) const { return 1; }
};

template <class F>
void forward(const F& functor) {
  kformer::attention_forward(Exec(), Heads(), Heads(), Heads(), Heads(), Tokens(), functor);
}

template <class F>
void backward(const F& functor) {
  const Heads x;
  const kformer::AttentionBackwardOperands operands{
      .q = x, .k = x, .v = x, .out = x, .lse = Tokens(), .dout = x, .dq = x, .dk = x, .dv = x};
  kformer::attention_backward(Exec(), operands, functor);
}

template <class F>
void forward_late(const F& functor) {
  kformer::attention_forward(Exec(), Heads(), Heads(), Heads(), Heads(), Tokens(), {.causal = true}, functor);
}

template <class F>
void backward_late(const F& functor) {
  const Heads x;
  const kformer::AttentionBackwardOperands operands{
      .q = x, .k = x, .v = x, .out = x, .lse = Tokens(), .dout = x, .dq = x, .dk = x, .dv = x};
  kformer::attention_backward(operands, kformer::AttentionOptions(), functor, kformer::Workspace());
}

template <class F, class... More>
void backward_with(const F& functor, const More&... more) {
  const Heads x;
  const kformer::AttentionBackwardOperands operands{
      .q = x, .k = x, .v = x, .out = x, .lse = Tokens(), .dout = x, .dq = x, .dk = x, .dv = x};
  kformer::attention_backward(Exec(), operands, functor, kformer::AttentionOptions(), {}, more...);
}

void program() {
#if KFORMER_WRONG_PROGRAM == 0
  forward(Mask());
  forward(Range());
  forward(Score());
  backward(Slope());
  forward_late(kformer::AttentionExtras<Exec>());
  backward_with(Slope(), kformer::AttentionExtraGradients<Exec>(), Bytes());
#elif KFORMER_WRONG_PROGRAM == 1
  forward(Nothing());
#elif KFORMER_WRONG_PROGRAM == 2
  forward(ChangingMask());
#elif KFORMER_WRONG_PROGRAM == 3
  forward(RangeOfNumbers());
#elif KFORMER_WRONG_PROGRAM == 4
  forward(SlopeWithoutIndex());
#elif KFORMER_WRONG_PROGRAM == 5
  forward(ReturnedGradient());
#elif KFORMER_WRONG_PROGRAM == 6
  forward(GradientOfAMask());
#elif KFORMER_WRONG_PROGRAM == 7
  backward(Score());
#elif KFORMER_WRONG_PROGRAM == 8
  forward(ScoreInDouble());
#elif KFORMER_WRONG_PROGRAM == 9
  backward(SlopeInDouble());
#elif KFORMER_WRONG_PROGRAM == 10
  forward_late(Mask());
#elif KFORMER_WRONG_PROGRAM == 11
  backward_late(Slope());
#elif KFORMER_WRONG_PROGRAM == 12
  backward(DerivativeOfAMask());
#elif KFORMER_WRONG_PROGRAM == 13
  backward_with(Slope(), Bytes());
#endif
}
