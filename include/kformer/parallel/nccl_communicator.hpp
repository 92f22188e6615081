// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kformer/parallel/communicator.hpp"

/// \file
/// Ranks whose devices exchange messages through NCCL. Needs `Kformer::parallel`, built with Kformer_ENABLE_NCCL.

namespace kformer {

namespace Impl {
class NcclLine;
class NcclWorld;
struct NcclMessages;
}  // namespace Impl

/// Options of `NcclCommunicator`.
struct NcclOptions {
  std::chrono::duration<double> timeout = std::chrono::minutes(5);  ///< of every wait for another rank
};

/// Ranks of another communicator, whose messages in device memory go through NCCL. Those in host memory, of barriers and of
/// numbers that hosts gather, go through the other one, and so does what NCCL needs to begin.
///
/// Messages are work of the instance: a call enqueues them on its stream and returns. With `begin` they travel on a stream
/// of their own, from the work launched before on, and `finish` lets the instance wait for them, not the host. An instance
/// without a stream waits for its messages, which must lie in device memory all the same.
///
/// Ranks that exchange messages for the first time are connected before the call returns, or with `begin` before the next
/// call of any communicator that was made of the same one, so that both must come to it. NCCL moves bytes and sums nothing:
/// `Collectives` has the same bits as with MPI.
///
/// Streams launch messages of all these communicators in the order of the calls, and each waits on the device for its peer:
/// what a rank launches next must not wait for a message that its peer sends later. A program that loads kernels when they
/// are launched first does so, where loading waits for the device: set CUDA_MODULE_LOADING=EAGER before CUDA starts.
///
/// Every wait has a time-out, also that of the stream: a thread looks at what is under way. If a rank is missing, it ends
/// the messages of all ranks here (ncclCommAbort), the work on the stream goes on with what is there, and the next call
/// or `settle` throws a sentence. So look at no result before one of them.
class NcclCommunicator final : public Communicator {
 public:
  /// Waits for the other ranks of `host`, which make the same call, each after the device was chosen that it uses (as
  /// Kokkos does when it is initialised). Several ranks can only have one device if the environment has
  /// NCCL_MULTI_RANK_GPU_ENABLE=1.
  /// \param host    for messages in host memory, such as an MpiCommunicator; it must not be used otherwise meanwhile
  /// \param options time-out
  /// \throws CommunicationError if a rank does not come in time, or NCCL fails
  /// \throws NotSupported if there is no host communicator, or the time-out is not positive
  explicit NcclCommunicator(std::shared_ptr<Communicator> host, const NcclOptions& options = {});
  /// Waits for what is under way, unless something was thrown.
  ~NcclCommunicator() override;

  bool takes_device_memory() const override { return true; }
  bool keeps_order() const override { return true; }
  double exchange(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override;
  double begin(const InstanceRef& exec, const ExchangeName& name, std::span<const Outgoing> sends,
               std::span<const Incoming> receives) override;
  /// True for an instance with a stream, once the ranks are connected.
  bool poll() override;
  void finish() override;
  /// Waits for the messages of all communicators that were made of one.
  void settle() const override;
  /// By ncclCommSplit, for which this rank waits for what is under way.
  std::unique_ptr<Communicator> subset(std::span<const int> members, const std::string& name) override;

 private:
  struct Begun;
  NcclCommunicator(std::shared_ptr<Communicator> host, std::shared_ptr<Impl::NcclWorld> world,
                   std::unique_ptr<Impl::NcclLine> line);
  std::string prefix(const ExchangeName& name) const;
  void require_ready(const ExchangeName& name) const;
  void require_device_memory(const ExchangeName& name, std::span<const Outgoing> sends,
                             std::span<const Incoming> receives) const;
  Impl::NcclMessages messages(const ExchangeName& name, std::span<const Outgoing> sends,
                              std::span<const Incoming> receives) const;
  template <class F>
  auto through_host(F f);

  std::shared_ptr<Communicator> m_host;
  std::shared_ptr<Impl::NcclWorld> m_world;  // shared with the subsets
  std::unique_ptr<Impl::NcclLine> m_line;    // of these ranks
  std::unique_ptr<Begun> m_begun;
};

}  // namespace kformer
