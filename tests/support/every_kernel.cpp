// SPDX-License-Identifier: MIT
#include "support/every_kernel.hpp"

namespace kformer::Testing {

template class TestMemory<Exec::memory_space>;
template class TestTensor<Exec, float>;
template class TestTensor<Exec, bf16>;
template class TestTensor<Exec, f16>;
template class TestTensor<Exec, double>;
template class TestTensor<Exec, std::int32_t>;
template class TestTensor<Exec, std::uint8_t>;

void check_close(const std::string& what, const Comparison& c) { BOOST_TEST(c.ok, what << ": " << c.report); }

bool test_kernel(const KernelCase& c, const std::vector<Output*>& outputs,
                 const std::function<void(const std::string&)>& verify) {
  const std::string name = c.function + '[' + c.kernel + "] " + c.operands;
  if (c.must_accept)
    BOOST_TEST(c.refusal.empty() == *c.must_accept,
               name << (*c.must_accept ? " must be accepted, but: " : " must be refused") << c.refusal);
  int& runs = kernel_runs()[c.kernel];
  if (!c.refusal.empty()) return false;
  ++runs;
  BOOST_TEST_CONTEXT(name) {
    const std::int64_t need = c.workspace_bytes();
    TestTensor<Exec, double> workspace({(need + 7) / 8}, Rows::packed);
    const Kokkos::View<std::byte*, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> bytes(
        static_cast<std::byte*>(workspace.ref().data), static_cast<std::size_t>(need));
    std::vector<std::vector<unsigned char>> first;
    for (int run = 0; run < 2; ++run) {
      workspace.reset();
      for (Output* output : outputs) output->reset();
      c.run(bytes);
      Exec().fence("kformer::Testing::test_kernel");
      if (run == 0) {
        for (const Output* output : outputs) first.push_back(output->bits());
        continue;
      }
      for (std::size_t i = 0; i < outputs.size(); ++i)
        BOOST_TEST((outputs[i]->bits() == first[i]), "output " << i << " differs between two runs");
    }
    BOOST_TEST(workspace.guards_intact(), "wrote outside its workspace");
    for (std::size_t i = 0; i < outputs.size(); ++i)
      BOOST_TEST(outputs[i]->guards_intact(), "wrote outside output " << i);
    verify(c.kernel);
  }
  return true;
}

}  // namespace kformer::Testing
