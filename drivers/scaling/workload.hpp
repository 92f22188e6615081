// SPDX-License-Identifier: MIT
#pragma once

#include <memory>
#include <string>

#include "learner/learner.hpp"
#include "scaling/traffic.hpp"

/// \file
/// What is timed, behind interfaces without execution space and precision.

namespace kformer::drivers {

/// A decoder layer with its inputs.
class LayerBench {
 public:
  virtual ~LayerBench() = default;
  /// Forward; waits.
  virtual void forward() = 0;
  /// Backward of the last forward; waits. Without gradients of weights if these are work of their own.
  virtual void backward() = 0;
  /// The same, then the gradients of weights that backward left; waits.
  virtual void whole_backward() = 0;
};

/// What ranks do with a link.
enum class LinkUse {
  gather,  ///< `all_gather` of some bytes of each rank
  sum,     ///< `reduce_scatter` of as many to each
  message  ///< from rank 0 to rank 1, and back
};

/// Exchanges of the ranks of a communicator.
class LinkBench {
 public:
  virtual ~LinkBench() = default;
  /// Exchanges so many bytes; waits.
  virtual void exchange(std::size_t bytes, LinkUse use) = 0;
};

/// The first layer of a learner, with whoever divides it.
std::unique_ptr<LayerBench> make_layer_bench(const std::string& space, const LearnerTask& task,
                                             const std::shared_ptr<Ledger>& ledger);

/// Exchanges of at most `bytes`.
std::unique_ptr<LinkBench> make_link_bench(const std::string& space, const std::shared_ptr<Communicator>& ranks,
                                           std::size_t bytes, const std::shared_ptr<Ledger>& ledger);

/// What a learner would train; nothing is allocated.
TrainedArrays trained_arrays(const std::string& space, const LearnerTask& task);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<LayerBench> make_layer_bench_on(const LearnerTask& task, Ledger& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
std::unique_ptr<LinkBench> make_link_bench_on(const std::shared_ptr<Communicator>& ranks, std::size_t bytes,
                                              Ledger& ledger);

/// The same for one space; instantiated for every space of the build.
template <class Exec>
TrainedArrays trained_arrays_on(const LearnerTask& task);

}  // namespace kformer::drivers
