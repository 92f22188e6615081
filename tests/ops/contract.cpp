// SPDX-License-Identifier: MIT
// What every public function promises (docs/architecture.md, §2): its kernels run on the instance it is given,
// under labels of ours; it fences nothing, allocates nothing and copies nothing behind the caller's back.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/core/scratch.hpp"
#include "ops/attention_cases.hpp"
#include "ops/linear_cases.hpp"
#include "ops/public_functions_of_layers.hpp"
#include "ops/public_functions_of_models.hpp"
#include "ops/quantized_cases.hpp"
#include "support/tools.hpp"

namespace kformer::Testing {
namespace {

template <class T>
std::vector<PublicFunction> every_public_function(const Extents& extents = {}) {
  std::vector<PublicFunction> table;
  add_rms_norm<T>(table, extents);
  add_rope<T>(table, extents);
  add_linear<T>(table, extents);
  add_lora<T>(table, extents);
  add_swiglu<T>(table, extents);
  add_swiglu_mlp<T>(table, extents);
  add_standard_attention<T>(table, extents);
  add_attention<T>(table, extents);
  add_embedding<T>(table, extents);
  add_quantized<T>(table, extents);
  add_ternary<T>(table, extents);
  add_cross_entropy<T>(table, extents);
  add_linear_cross_entropy<T>(table, extents);
  add_adamw<T>(table, extents);
  add_sampling<T>(table, extents);
  add_kv_cache<T>(table, extents);
  return table;
}

/// An instance that is not the default one. Device ids tell instances apart on devices; on the host Kokkos
/// gives all instances of a space one id, and there only a kernel on another space is seen.
Exec own_instance() { return Kokkos::Experimental::partition_space(Exec{}, 1)[0]; }

/// A space beside the one that is tested, where this Kokkos has one.
#ifdef KOKKOS_ENABLE_SERIAL
using Elsewhere =
    std::conditional_t<std::is_same_v<Exec, Kokkos::Serial>, Kokkos::DefaultExecutionSpace, Kokkos::Serial>;
#else
using Elsewhere = Kokkos::DefaultExecutionSpace;
#endif

/// The origin of a kernel. A kernel of another library has that library's labels, or is not a Kokkos kernel at
/// all.
enum class Origin { ours, library };
Origin origin_of(const std::string& kernel) { return kernel == "kokkos_blas" ? Origin::library : Origin::ours; }

/// What a recorded call did against its promise.
std::vector<std::string> breaches(const ToolsRecorder& seen, const Exec& exec, Origin origin) {
  const std::uint32_t device = Kokkos::Tools::Experimental::device_id(exec);
  std::vector<std::string> found;
  for (const auto& kernel : seen.kernels()) {
    if (kernel.device != device) found.push_back("kernel on another instance: " + kernel.label);
    if (origin == Origin::ours && !kernel.label.starts_with("kformer::"))
      found.push_back("kernel of another name: " + kernel.label);
  }
  for (const auto& fence : seen.fences()) found.push_back("fence: " + fence);
  for (const auto& allocation : seen.allocations()) found.push_back("allocation: " + allocation.label);
  for (const auto& copy : seen.deep_copies()) found.push_back("copy: " + copy);
  if (origin == Origin::ours && seen.kernels().empty()) found.push_back("no kernel");
  return found;
}

template <class F>
std::vector<std::string> breaches_of(F call, Origin origin = Origin::ours) {
  const Exec exec = own_instance();
  call(exec);  // the first use of an instance may let its scratch memory grow
  exec.fence("kformer::Testing::warm_up");
  const ToolsRecorder recorder;
  call(exec);
  return breaches(recorder, exec, origin);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(contract)

BOOST_AUTO_TEST_CASE_TEMPLATE(every_kernel_of_every_public_function_keeps_it, T, Scalars) {
  for (const PublicFunction& function : every_public_function<T>()) {
    int ran = 0;
    for (const std::string& kernel : function.kernels) {
      const ForcedKernels forced(std::string(function.forced_as) + ':' + kernel);
      try {
        function.call(Exec());
      } catch (const NotSupported&) {
        continue;  // it refuses these operands
      }
      ++ran;
      for (const std::string& breach : breaches_of(function.call, origin_of(kernel)))
        BOOST_ERROR(function.name << '[' << kernel << "]: " << breach);
    }
    BOOST_TEST(ran > 0, function.name);
  }
}

// Those of a device, then those that need more of the processor. Where it is slow at pairs of bf16, AVX-512 comes first.
BOOST_AUTO_TEST_CASE(the_best_kernels_come_first) {
  const std::vector<std::vector<std::string>> ranks{{"simd_decode_avx512_bf16", "simd_decode_avx512"},
                                                    {"simd_decode_avx2"},
                                                    {"simd_decode_generic"},
                                                    {"simd_amx_bf16"},
                                                    {"simd_avx512_vnni"},
                                                    {"simd_avx512_bf16", "simd_avx512"},
                                                    {"simd_avx2"},
                                                    {"host_blas"},
                                                    {"kokkos_blas"},
                                                    {"separate"},
                                                    {"simd_generic"},
                                                    {"kokkos"},
                                                    {"reference"}};
  const auto rank = [&](const std::string& kernel) {
    for (std::size_t n = 0; n < ranks.size(); ++n)
      if (std::find(ranks[n].begin(), ranks[n].end(), kernel) != ranks[n].end()) return n + 1;
    return std::size_t(0);
  };
  for (const PublicFunction& function : every_public_function<float>())
    BOOST_TEST(std::is_sorted(function.kernels.begin(), function.kernels.end(),
                              [&](const auto& a, const auto& b) { return rank(a) < rank(b); }),
               function.name);
}

// Each has an overload for the default instance.
BOOST_AUTO_TEST_CASE_TEMPLATE(every_public_function_runs_without_an_instance, T, Scalars) {
  for (const PublicFunction& function : every_public_function<T>())
    if (function.call_without_instance) BOOST_TEST_CONTEXT(function.name) {
        BOOST_CHECK_NO_THROW(function.call_without_instance());
      }
  BOOST_CHECK_NO_THROW(Kokkos::fence("kformer::Testing::contract"));
}

/// What a call lets Kokkos allocate; nothing if the kernel refuses the operands.
template <class F>
std::optional<std::vector<ToolsRecorder::Allocation>> allocations_of(F call) {
  const ToolsRecorder recorder;
  try {
    call();
  } catch (const NotSupported&) {
    return std::nullopt;
  }
  return recorder.allocations();
}

/// Small operands and large ones: head dimensions of 256 take the most memory.
template <class T>
auto small_and_large() {
  return std::array{every_public_function<T>(), every_public_function<T>(Extents{.times = 32, .rows = 70})};
}

/// `f(functions, exec)` for each kernel of each public function in turn, forced, with an instance of its own;
/// `functions` are those of the small and of the large operands. References are too slow for these: `breaches_of`
/// sees them.
template <class F, class Tables>
void for_each_kernel_of(const Tables& tables, F f) {
  for (std::size_t n = 0; n < tables[0].size(); ++n)
    for (const std::string& kernel : tables[0][n].kernels)
      if (kernel != "reference") BOOST_TEST_CONTEXT(tables[0][n].name << '[' << kernel << ']') {
          const ForcedKernels forced(std::string(tables[0][n].forced_as) + ':' + kernel);
          f(std::array{tables[0][n], tables[1][n]}, own_instance());
        }
}

// A call that needs more scratch memory than any before lets that of the instance grow, once, and allocates nothing
// else.
BOOST_AUTO_TEST_CASE_TEMPLATE(only_scratch_grows_and_only_at_first_use, T, Scalars) {
  for_each_kernel_of(small_and_large<T>(), [](const auto& functions, const Exec& exec) {
    for (const PublicFunction& function : functions) {
      const auto allocations = [&] { return allocations_of([&] { function.call(exec); }); };
      // Whether an instance has scratch memory from the start depends on the version of Kokkos.
      const auto first = allocations();
      if (!first) continue;
      for (const auto& allocation : *first)
        BOOST_TEST(allocation.label.ends_with("::scratch_mem"), allocation.label << ' ' << allocation.bytes);
      BOOST_TEST(allocations()->empty());
    }
  });
}

BOOST_AUTO_TEST_CASE_TEMPLATE(with_reserved_scratch_no_function_allocates, T, Scalars) {
  int ran = 0;
  for_each_kernel_of(small_and_large<T>(), [&](const auto& functions, const Exec& exec) {
    reserve_scratch(exec);
    for (const PublicFunction& function : functions)
      if (const auto allocations = allocations_of([&] { function.call(exec); })) {
        ++ran;
        for (const auto& allocation : *allocations)
          BOOST_ERROR("allocation: " << allocation.label << ' ' << allocation.bytes);
      }
  });
  BOOST_TEST(ran > 0);
}

/// An instance with reserved scratch memory allocates nothing in `problem`, whichever kernel runs it.
template <class Problem>
void check_reserved(const Problem& problem, std::size_t bytes = usual_scratch_bytes) {
  int ran = 0;
  for (const auto& kernel : kernels<Problem, Exec>()) {
    if (std::string_view(kernel.name) == "reference" || !kernel.reject(problem).empty()) continue;
    const Exec exec = own_instance();
    reserve_scratch(exec, bytes);
    const Kokkos::View<std::byte*, Exec::memory_space> workspace("workspace", kernel.workspace_bytes(problem));
    const auto allocations = allocations_of([&] { kernel.run(exec, problem, workspace); });
    for (const auto& allocation : *allocations)
      BOOST_ERROR(Problem::function << '[' << kernel.name << "]: allocation: " << allocation.label << ' '
                                    << allocation.bytes);
    ++ran;
  }
  BOOST_TEST(ran > 0);
}

// The calls that need the most.
BOOST_AUTO_TEST_CASE_TEMPLATE(reserved_scratch_is_enough, T, Scalars) {
  const linear_cases::Tensors<T> gradient({2, 2304, 2048}), forward({1100, 20, 2300});
  check_reserved(Impl::LinearBackwardWeight{gradient.x.ref(), gradient.dy.ref(), gradient.dweight.ref()});
  check_reserved(Impl::LinearForward{forward.x.ref(), forward.weight.ref(), {}, {}, forward.y.ref()});
  AttentionTensors<T> wide(AttentionCase{1, 130, 130, 8, 1, 256, 256}.causal().alibi().softcap(2));
  wide.lse.fill([](std::size_t) { return 0; });
  check_reserved(wide.forward_problem());
  check_reserved(wide.backward_problem());
  AttentionTensors<T> wider(AttentionCase{1, 70, 70, 2, 1, 512, 512}.causal());
  wider.lse.fill([](std::size_t) { return 0; });
  check_reserved(wider.forward_problem(), 2 * usual_scratch_bytes);
  check_reserved(wider.backward_problem(), 2 * usual_scratch_bytes);
  // 512 queries of all heads; those of a group share a key head.
  for (const int kv_heads : {32, 128, 512}) {
    AttentionTensors<T> decode(AttentionCase{1, 1, 40, 512, kv_heads, 256, 256});
    check_reserved(decode.forward_problem());
  }
  for (const auto activations : {Activations::full, Activations::int8}) {
    const std::int64_t rows = activations == Activations::full ? 8 : 32;  // of a tile
    const TestTensor<Exec, T> x({rows, 32768}), y({rows, 3});
    const QuantizedWeights weight(QuantizedFormat::q8_0, 3, 32768);
    Impl::QuantizedLinearForward problem{x.ref(), weight.matrix(), {}, y.ref()};
    problem.options.activations = activations;
    check_reserved(problem);
  }
}

// The recorder must see a breach: each of these kernels breaks the promise in one way.
BOOST_AUTO_TEST_CASE(breaches_are_seen) {
  const Vector<float> data("data", 8);
  const auto launch = [=](const Exec& exec, const char* label) {
    Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec>(exec, 0, 8), KOKKOS_LAMBDA(int i) { data(i) += 1; });
  };
  const auto only = [](const std::vector<std::string>& found) {
    BOOST_REQUIRE(found.size() == 1u);
    return found.front();
  };
  BOOST_TEST(breaches_of([&](const Exec& exec) { launch(exec, "kformer::good"); }).empty());
  BOOST_TEST(only(breaches_of([&](const Exec& exec) { launch(exec, "good"); })) ==
             "kernel of another name: good");
  BOOST_TEST(only(breaches_of([&](const Exec& exec) {
               launch(exec, "kformer::good");
               exec.fence("hidden");
             })) == "fence: hidden");
  BOOST_TEST(only(breaches_of([](const Exec&) {})) == "no kernel");
  if (!std::is_same_v<Exec, Elsewhere>) {
    const auto elsewhere = breaches_of([&](const Exec& exec) {
      launch(exec, "kformer::good");
      Kokkos::parallel_for("kformer::elsewhere", Kokkos::RangePolicy<Elsewhere>(0, 1), KOKKOS_LAMBDA(int){});
    });
    BOOST_TEST(elsewhere.front() == "kernel on another instance: kformer::elsewhere");
  }
  const auto reduced = breaches_of([&](const Exec& exec) {
    float sum = 0;
    Kokkos::parallel_reduce(
        "sum", Kokkos::RangePolicy<Exec>(exec, 0, 8), KOKKOS_LAMBDA(int i, float& s) { s += data(i); }, sum);
  });
  BOOST_TEST(reduced.front() == "kernel of another name: sum");
  const auto allocated = breaches_of([&](const Exec& exec) {
    launch(exec, "kformer::good");
    Vector<float>(Kokkos::view_alloc("hidden", Kokkos::WithoutInitializing), 8);
  });
  BOOST_TEST((std::find(allocated.begin(), allocated.end(), "allocation: hidden") != allocated.end()));
  const Vector<float> other("other", 8);
  const auto copied = breaches_of([&](const Exec& exec) {
    launch(exec, "kformer::good");
    Kokkos::deep_copy(exec, other, data);
  });
  BOOST_TEST((std::find(copied.begin(), copied.end(), "copy: data -> other") != copied.end()));
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
