// SPDX-License-Identifier: MIT
// The first program to run on a new GPU: every tuned CUDA kernel on small shapes against its reference. It needs
// the driver and nothing else. A kernel that is wrong here is wrong by itself: neither Kokkos nor the library takes
// part.
//
//   kformer_first_contact [--only TEXT] [--first] [--no-times]
//
// One line per case, "right" or "WRONG" with the reason, and the time of a call. --only takes cases whose line has the
// text, --first the first case of each kernel. Ends with 1 if a case is wrong or the device does not work, with 77 if
// there is none.
#include <cstdio>
#include <cstring>
#include <exception>

#include "first_contact/report.hpp"
#include "kformer/core/error.hpp"
#include "support/compare.hpp"

namespace kformer::Testing {
template Comparison compare_as(DType, const Impl::HostTensor<double>&, const Impl::HostTensor<double>&,
                               const Impl::HostTensor<Impl::Estimated<float>>&);
template Comparison compare_as(DType, const Impl::HostTensor<long double>&,
                               const Impl::HostTensor<long double>&,
                               const Impl::HostTensor<Impl::Estimated<double>>&);
}  // namespace kformer::Testing

namespace kformer::FirstContact {

namespace {

int run(const Choice& choice) {
  Report report(find_device(), choice);
  const int capability = report.device().capability;
  std::printf("device: %s, compute capability %d.%d\n", report.device().name.c_str(), capability / 10,
              capability % 10);
  if (capability < 80) throw Unavailable{77, "skipped: the tuned kernels need compute capability 8.0"};
  if (!report.has_warpgroups())
    std::printf("skipped in part: cuda_wgmma needs a device of compute capability 9.0\n");
  for (const auto check : {check_rms_norm, check_rope, check_swiglu, check_linear, check_quantized,
                           check_embedding, check_cross_entropy, check_adamw, check_attention})
    check(report);
  return report.end();
}

}  // namespace
}  // namespace kformer::FirstContact

int main(int argc, char* argv[]) {
  kformer::FirstContact::Choice choice;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--no-times") == 0) {
      choice.times = false;
    } else if (std::strcmp(argv[i], "--first") == 0) {
      choice.first = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      choice.only = argv[++i];
    } else {
      std::fprintf(
          stderr,
          "kformer_first_contact: '%s' is not understood; it takes --only TEXT, --first and --no-times\n",
          argv[i]);
      return 2;
    }
  }
  try {
    return kformer::FirstContact::run(choice);
  } catch (const kformer::FirstContact::Unavailable& reason) {
    std::printf("%s\n", reason.why.c_str());
    return reason.exit_code;
  } catch (const std::exception& error) {
    std::printf("first contact: it ends here, the device takes no more work: %s\n", error.what());
    return 1;
  }
}
