// SPDX-License-Identifier: MIT
#pragma once

#include <boost/test/unit_test.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kformer/parallel/collectives.hpp"
#include "kformer/parallel/mpi_communicator.hpp"
#ifdef KFORMER_TEST_NCCL
#include "kformer/parallel/nccl_communicator.hpp"
#endif

/// \file
/// The ranks of a test. Every rank runs every test.

namespace kformer::Testing {

/// Where the tests of ranks run.
using Exec = Kokkos::DefaultExecutionSpace;

/// A vector of T.
template <class T>
using Vector = Kokkos::View<T*, Exec::memory_space>;

/// Whether ranks send messages of devices through NCCL, or the fake of it: KFORMER_TEST_BACKEND says so.
inline bool through_nccl() {
  const char* const backend = std::getenv("KFORMER_TEST_BACKEND");
  return backend != nullptr && std::string_view(backend) == "nccl";
}

/// What sentences call the communicator.
inline std::string communicator_name() {
  return through_nccl() ? "kformer::NcclCommunicator" : "kformer::MpiCommunicator";
}

/// All ranks, with a communicator for each call.
inline std::shared_ptr<Communicator> world(double seconds = 60) {
  const std::chrono::duration<double> timeout(seconds);
#ifdef KFORMER_TEST_NCCL
  if (through_nccl())
    // A host communicator gives up later, so that the sentence is of NCCL.
    return std::make_shared<NcclCommunicator>(
        std::make_shared<MpiCommunicator>(MPI_COMM_WORLD, MpiOptions{.timeout = std::chrono::minutes(1)}),
        NcclOptions{timeout});
#endif
  return std::make_shared<MpiCommunicator>(MPI_COMM_WORLD, MpiOptions{.timeout = timeout});
}

/// A host array, on the device.
template <class T>
Vector<T> on_device(const std::vector<T>& values) {
  const Vector<T> view("values", values.size());
  Kokkos::deep_copy(view, Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                              values.data(), values.size()));
  return view;
}

/// And back.
template <class V>
std::vector<typename V::non_const_value_type> on_host(const V& view) {
  Kokkos::fence("kformer::Testing::on_host");
  const auto copy = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, view);
  return {copy.data(), copy.data() + copy.size()};
}

/// Whether two arrays have the same bits.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace kformer::Testing
