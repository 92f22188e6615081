// SPDX-License-Identifier: MIT
// Errors: operands that do not fit and memory that is not there are exceptions, after which a program can go on. Checks
// that a refused call changes nothing, and that a refused model leaves no memory behind.
#include <Kokkos_Core.hpp>
#include <cstdio>
#include <optional>

#include "kformer/kformer.hpp"

using Exec = Kokkos::DefaultExecutionSpace;
using Matrix = Kokkos::View<float**, Kokkos::LayoutRight>;

float first_of(const Matrix& matrix) {
  return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), matrix)(0, 0);
}

bool operands(const Exec& exec) {
  const Matrix x("x", 4, 8), weight("weight", 6, 8), y("y", 4, 6), wide("wide", 4, 7);
  Kokkos::deep_copy(x, 1.0f);
  Kokkos::deep_copy(weight, 0.5f);
  Kokkos::deep_copy(wide, -1.0f);
  bool refused = false;
  // [operands]
  try {
    kformer::linear_forward(exec, x, weight, wide);
  } catch (const kformer::DimensionMismatch& error) {
    // kformer::linear_forward: extents do not match: x[4,8] weight[6,8] y[4,7]; expected …
    std::printf("%s\n", error.what());
    refused = true;
  }
  kformer::linear_forward(exec, x, weight, y);  // nothing was launched before, so the program goes on
  // [operands]
  exec.fence();
  return refused && first_of(wide) == -1 && first_of(y) == 4;
}

bool memory(const Exec& exec) {
  const kformer::LlamaConfig config{.hidden_size = 64,
                                    .intermediate_size = 128,
                                    .num_attention_heads = 4,
                                    .num_key_value_heads = 2,
                                    .head_dim = 16,
                                    .num_hidden_layers = 2,
                                    .vocab_size = 256};
  bool freed = true;
  // [memory]
  using Model = kformer::LlamaModel<Exec, float>;
  const auto ledger = kformer::Ledger::create(kformer::Ledger::Mode::allocate, std::size_t(8) << 20);  // 8 MiB
  std::optional<Model> model;
  int seq_len = 4096;
  while (!model) try {
      model.emplace(config, kformer::LayerShape{1, seq_len}, kformer::LayerOptions{}, *ledger);
    } catch (const kformer::OutOfMemory& error) {
      std::printf("%s\n", error.what());  // what was asked for, and the table of the ledger
      freed = freed && ledger->current_total() == 0;
      seq_len /= 2;
    }
  model->prepare(exec);
  // [memory]
  exec.fence();
  std::printf("%d tokens fit\n", seq_len);
  return freed && seq_len > 1 && seq_len < 4096 && ledger->peak_total() <= std::size_t(8) << 20;
}

int main(int argc, char* argv[]) {
  const Kokkos::ScopeGuard kokkos(argc, argv);
  const Exec exec;
  return operands(exec) && memory(exec) ? 0 : 1;
}
