// SPDX-License-Identifier: MIT
#include "kformer/core/kernel_list.hpp"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "kformer/core/operands.hpp"
#include "support/errors.hpp"

namespace kformer {
namespace Testing {
namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

/// A made-up op whose kernels write down who ran.
struct ToyForward {
  static constexpr const char* op = "toy";
  static constexpr const char* function = "toy_forward";
  int width = 0;
  std::vector<std::string>* ran = nullptr;
  TensorRef x{};
  Operands operands() const { return Operands(function, {{"x", x}}); }
  void check() const {}
};

std::string only_even(const ToyForward& p) {
  return p.width % 2 == 0 ? "" : "width " + std::to_string(p.width) + " is odd";
}
std::string only_small(const ToyForward& p) {
  return p.width < 10 ? "" : "width " + std::to_string(p.width) + " is above 9";
}
std::size_t eight_bytes(const ToyForward&) { return 8; }

template <int which>
void run(const Exec&, const ToyForward& p, const Workspace& workspace) {
  static constexpr const char* names[] = {"even", "small"};
  p.ran->push_back(std::string(names[which]) + " with " + std::to_string(workspace.bytes) + " bytes");
}

constexpr std::array<Kernel<ToyForward, Exec>, 2> toy_kernels{{
    {"even", only_even, eight_bytes, run<0>},
    {"small", only_small, no_workspace<ToyForward>, run<1>},
}};

// Another function of the op, with a list of its own.
const bool backward_is_known = (Impl::make_known("toy", "toy_backward", "slow"), true);

std::string chosen_for(int width) { return choose<ToyForward, Exec>(toy_kernels, ToyForward{width}).name; }

/// Sets an environment variable, or removes it, for a scope.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : m_name(name) {
    if (const char* before = std::getenv(name)) m_before = before;
    set(value);
  }
  ~EnvironmentVariable() { set(m_before ? m_before->c_str() : nullptr); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const char* value) {
    if (value)
      ::setenv(m_name, value, 1);
    else
      ::unsetenv(m_name);
  }
  const char* m_name;
  std::optional<std::string> m_before;
};

/// No choice and no talk from outside.
struct QuietEnvironment {
  EnvironmentVariable kernel{"KFORMER_KERNEL", nullptr}, verbose{"KFORMER_VERBOSE", nullptr};
};

/// What `call` writes to standard error.
template <class F>
std::string standard_error_of(F call) {
  std::FILE* file = std::tmpfile();
  BOOST_REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int before = ::dup(2);
  ::dup2(::fileno(file), 2);
  call();
  std::fflush(stderr);
  ::dup2(before, 2);
  ::close(before);
  BOOST_REQUIRE(std::fseek(file, 0, SEEK_SET) == 0);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace
}  // namespace Testing

template <>
KernelList<Testing::ToyForward, Testing::Exec> kernels<Testing::ToyForward, Testing::Exec>() {
  return Testing::toy_kernels;
}

namespace Testing {

BOOST_FIXTURE_TEST_SUITE(kernel_list, QuietEnvironment)

BOOST_AUTO_TEST_CASE(the_first_that_does_not_refuse_is_chosen) {
  BOOST_TEST(chosen_for(4) == "even");
  BOOST_TEST(chosen_for(12) == "even");
  BOOST_TEST(chosen_for(5) == "small");
}

BOOST_AUTO_TEST_CASE(an_error_lists_every_refusal) {
  check_error<NotSupported>(
      [] { chosen_for(11); },
      "kformer::toy_forward: no kernel can do this: even: width 11 is odd; small: width 11 is above 9");
}

BOOST_AUTO_TEST_CASE(a_kernel_is_forced_by_op_or_by_function) {
  const EnvironmentVariable by_op("KFORMER_KERNEL", "toy:small");
  BOOST_TEST(chosen_for(4) == "small");
  const EnvironmentVariable by_function("KFORMER_KERNEL", "toy_forward:small");
  BOOST_TEST(chosen_for(4) == "small");
  const EnvironmentVariable other("KFORMER_KERNEL", "attention:kokkos,toy_backward:slow");
  BOOST_TEST(chosen_for(4) == "even");
  const EnvironmentVariable second("KFORMER_KERNEL", "attention:kokkos,toy:small");
  BOOST_TEST(chosen_for(4) == "small");
}

BOOST_AUTO_TEST_CASE(the_function_goes_before_the_op) {
  const EnvironmentVariable op_first("KFORMER_KERNEL", "toy:even,toy_forward:small");
  BOOST_TEST(chosen_for(4) == "small");
  const EnvironmentVariable function_first("KFORMER_KERNEL", "toy_forward:small,toy:even");
  BOOST_TEST(chosen_for(4) == "small");
}

BOOST_AUTO_TEST_CASE(a_forced_kernel_that_refuses_or_is_unknown_is_an_error) {
  const EnvironmentVariable refuses("KFORMER_KERNEL", "toy:even");
  check_error<NotSupported>(
      [] { chosen_for(5); },
      "kformer::toy_forward: KFORMER_KERNEL asks for a kernel that refuses: even: width 5 is odd");
  const EnvironmentVariable unknown("KFORMER_KERNEL", "toy:fast");
  check_error<NotSupported>(
      [] { chosen_for(5); },
      "kformer: KFORMER_KERNEL asks for 'fast' of 'toy', whose kernels are: even, slow, small");
  const EnvironmentVariable of_a_function("KFORMER_KERNEL", "toy_forward:slow");
  check_error<NotSupported>(
      [] { chosen_for(5); },
      "kformer: KFORMER_KERNEL asks for 'slow' of 'toy_forward', whose kernels are: even, small");
}

BOOST_AUTO_TEST_CASE(a_name_of_another_function_of_the_op_leaves_the_usual_choice) {
  const EnvironmentVariable of_backward("KFORMER_KERNEL", "toy:slow");
  BOOST_TEST(chosen_for(4) == "even");
  BOOST_TEST(chosen_for(5) == "small");
}

BOOST_AUTO_TEST_CASE(an_op_that_does_not_exist_is_an_error) {
  const EnvironmentVariable typo("KFORMER_KERNEL", "toi:even");
  try {
    chosen_for(4);
    BOOST_ERROR("no error");
  } catch (const NotSupported& error) {
    const std::string text = error.what();
    BOOST_TEST(
        text.find("kformer: KFORMER_KERNEL names 'toi', which is not an op; ops and functions: adamw, ") == 0u,
        text);
    BOOST_TEST(text.find(", toy, toy_backward, toy_forward") != text.npos, text);
  }
}

BOOST_AUTO_TEST_CASE(a_malformed_choice_is_an_error) {
  for (const char* item : {"toy", "toy:"}) {
    const EnvironmentVariable malformed("KFORMER_KERNEL", item);
    check_error<NotSupported>(
        [] { chosen_for(4); },
        std::string("kformer: KFORMER_KERNEL must have the form OP:KERNEL[,OP:KERNEL...], got \"") + item +
            "\"");
  }
}

BOOST_AUTO_TEST_CASE(forced_kernels_hold_for_a_scope_in_place_of_the_environment) {
  const EnvironmentVariable environment("KFORMER_KERNEL", "toy:fast");
  {
    const ForcedKernels outer("toy:small");
    BOOST_TEST(chosen_for(4) == "small");
    {
      const ForcedKernels inner("toy:even");
      BOOST_TEST(chosen_for(4) == "even");
    }
    BOOST_TEST(chosen_for(4) == "small");
    const ForcedKernels none("");
    BOOST_TEST(chosen_for(4) == "even");
  }
  BOOST_CHECK_THROW(chosen_for(4), NotSupported);
}

BOOST_AUTO_TEST_CASE(an_observer_is_told_of_each_choice) {
  struct Observer : KernelObserver {
    std::vector<std::string> seen;
    void chosen(const char* op, const char* function, const char* kernel) override {
      seen.push_back(std::string(op) + ' ' + function + ' ' + kernel);
    }
  } observer;
  KernelObserver* const before = set_kernel_observer(&observer);
  chosen_for(4);
  chosen_for(5);
  BOOST_CHECK_THROW(chosen_for(11), NotSupported);
  BOOST_TEST(set_kernel_observer(before) == &observer);
  chosen_for(4);
  const std::vector<std::string> expected{"toy toy_forward even", "toy toy_forward small"};
  BOOST_TEST(observer.seen == expected, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(choices_and_observers_are_those_of_their_thread) {
  struct Observer : KernelObserver {
    int seen = 0;
    void chosen(const char*, const char*, const char*) override { ++seen; }
  } observer;
  const ForcedKernels forced("toy:small");
  KernelObserver* const before = set_kernel_observer(&observer);
  std::string elsewhere;
  std::thread([&] { elsewhere = chosen_for(4); }).join();
  BOOST_TEST(elsewhere == "even");
  BOOST_TEST(observer.seen == 0);
  BOOST_TEST(chosen_for(4) == "small");
  BOOST_TEST(observer.seen == 1);
  set_kernel_observer(before);
}

BOOST_AUTO_TEST_CASE(verbose_prints_choices_and_refusals) {
  BOOST_TEST(standard_error_of([] { chosen_for(5); }) == "");
  for (const char* off : {"", "0"}) {
    const EnvironmentVariable verbose("KFORMER_VERBOSE", off);
    BOOST_TEST(standard_error_of([] { chosen_for(5); }) == "");
  }
  const EnvironmentVariable verbose("KFORMER_VERBOSE", "1");
  BOOST_TEST(standard_error_of([] { chosen_for(5); }) ==
             "kformer::toy_forward: even refuses: width 5 is odd\nkformer::toy_forward: small runs\n");
}

BOOST_AUTO_TEST_CASE(run_best_runs_the_choice_with_enough_workspace) {
  std::vector<std::string> ran;
  const Kokkos::View<std::byte*, Kokkos::HostSpace> bytes("bytes", 8);
  Impl::run_best(Exec(), ToyForward{4, &ran}, bytes);
  Impl::run_best(Exec(), ToyForward{5, &ran});
  const std::vector<std::string> expected{"even with 8 bytes", "small with 0 bytes"};
  BOOST_TEST(ran == expected, boost::test_tools::per_element());
  BOOST_TEST(Impl::best_workspace_bytes<Exec>(ToyForward{4}) == 8u);
  BOOST_TEST(Impl::best_workspace_bytes<Exec>(ToyForward{5}) == 0u);
  check_error<DimensionMismatch>([&] { Impl::run_best(Exec(), ToyForward{4, &ran}); },
                                 "kformer::toy_forward: the workspace has 0 bytes, 8 are needed; ask "
                                 "kformer::toy_forward_workspace_bytes: ");
  BOOST_TEST(ran.size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_call_needs_memory_and_a_plan_does_not) {
  std::vector<std::string> ran;
  const TensorRef x =
      tensor_ref(Kokkos::View<float*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(nullptr, 3));
  check_error<DimensionMismatch>(
      [&] { Impl::call(Exec(), ToyForward{5, &ran, x}); },
      "kformer::toy_forward: x has no memory (null pointer, or a ledger that only counts); allocate it: x[3]");
  BOOST_TEST(ran.empty());
  BOOST_TEST(Impl::best_workspace_bytes<Exec>(ToyForward{4, nullptr, x}) == 8u);
  Impl::call(Exec(), ToyForward{5, &ran});
  BOOST_TEST(ran.size() == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
}  // namespace Testing
}  // namespace kformer
