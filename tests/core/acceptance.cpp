// SPDX-License-Identifier: MIT
// The rule by which tests of kernel lists know what a kernel must accept.
#include "support/acceptance.hpp"

#include <boost/test/unit_test.hpp>

#include "kformer/core/operands.hpp"

namespace kformer::Testing {
namespace {

struct ToyProblem {
  TensorRef x;
};

ToyProblem stored_as(DType dtype) {
  ToyProblem p{};
  p.x.dtype = dtype;
  return p;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(acceptance)

BOOST_AUTO_TEST_CASE(an_instruction_set_needs_its_flags) {
  const ToyProblem p = stored_as(DType::bf16);
  const ProcessorFlags none, avx2{"avx2", "f16c", "fma"},
      avx512{"avx2", "avx512bw", "avx512dq", "avx512f", "avx512vl", "f16c", "fma"};
  ProcessorFlags all = avx512, no_fma = avx512;
  all.insert({"avx512_bf16", "avx512_vnni", "amx_tile", "amx_bf16"});
  no_fma.erase("fma");
  const auto accepted = [&](const ProcessorFlags& flags) {
    std::string names;
    for (const char* kernel :
         {"simd_amx_bf16", "simd_avx512_bf16", "simd_avx512_vnni", "simd_avx512", "simd_decode_avx512",
          "simd_avx2", "simd_generic", "kokkos", "separate", "reference"})
      if (must_accept(kernel, p, flags).value()) names += std::string(kernel) + ' ';
    return names;
  };
  const std::string portable = "simd_generic kokkos separate reference ";
  BOOST_TEST(accepted(none) == portable);
  BOOST_TEST(accepted(avx2) == "simd_avx2 " + portable);
  BOOST_TEST(accepted(avx512) == "simd_avx512 simd_decode_avx512 simd_avx2 " + portable);
  BOOST_TEST(accepted(no_fma) == "simd_avx512 simd_decode_avx512 " + portable);
  BOOST_TEST(accepted(all) ==
             "simd_amx_bf16 simd_avx512_bf16 simd_avx512_vnni simd_avx512 simd_decode_avx512 simd_avx2 " +
                 portable);
  for (const char* missing : {"amx_tile", "amx_bf16", "avx512bw"}) {
    ProcessorFlags some = all;
    some.erase(missing);
    BOOST_TEST(!must_accept("simd_amx_bf16", p, some).value(), missing);
  }
}

BOOST_AUTO_TEST_CASE(bf16_instructions_take_only_bf16) {
  const ProcessorFlags flags{"amx_tile", "amx_bf16", "avx512_bf16", "avx512bw",
                             "avx512dq", "avx512f",  "avx512vl"};
  for (const char* kernel : {"simd_amx_bf16", "simd_avx512_bf16"}) {
    BOOST_TEST(must_accept(kernel, stored_as(DType::bf16), flags).value());
    for (const DType other : {DType::f16, DType::f32, DType::f64})
      BOOST_TEST(!must_accept(kernel, stored_as(other), flags).value());
  }
  for (const DType other : {DType::f16, DType::f32, DType::f64}) {
    BOOST_TEST(must_accept("simd_avx512", stored_as(other), flags).value());
  }
}

BOOST_AUTO_TEST_CASE(of_libraries_and_devices_nothing_is_known) {
  for (const char* kernel : {"host_blas", "kokkos_blas", "cuda_tensor_cores", "simd_sve"})
    BOOST_TEST(!must_accept(kernel, stored_as(DType::f32)).has_value());
}

// Every processor that has a name for its flags has some.
#if defined(__x86_64__) && defined(__linux__)
BOOST_AUTO_TEST_CASE(flags_of_this_processor_are_read) { BOOST_TEST(processor_flags().contains("sse2")); }
#endif

BOOST_AUTO_TEST_SUITE_END()
}  // namespace kformer::Testing
