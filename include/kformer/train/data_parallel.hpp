// SPDX-License-Identifier: MIT
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kformer/core/enum_names.hpp"
#include "kformer/model/parameter.hpp"
#include "kformer/parallel/collectives.hpp"
#include "kformer/parallel/gradient_tree.hpp"

/// \file
/// Ranks that share the sequences of a step of training.

namespace kformer {

/// What data-parallel ranks divide among them besides the sequences: the stages of ZeRO (Rajbhandari et al.,
/// arXiv:1910.02054).
enum class ZeroStage {
  none,      ///< every rank has all of the optimizer
  optimizer  ///< each rank has the optimizer's states and master weights of its shard, and updates no other weights
};

/// The names of the stages.
template <>
inline constexpr std::array<std::string_view, 2> names_of<ZeroStage> = {"none", "optimizer"};

/// Options of `DataParallel`.
struct DataParallelOptions {
  std::shared_ptr<Communicator> ranks{};  ///< that share the sequences of a step; null: this one alone
  ZeroStage zero = ZeroStage::none;       ///< what they divide besides
  /// Whether sums over micro-batches are made in the tree of `tree_sum`, so that all numbers have the same bits for
  /// any number of ranks that `LeafBlocks::are_nodes` allows. The memory of `GradientTree` is the price.
  bool fixed_order = false;
  std::int64_t micro_batches = 1;    ///< of this rank in a step, at most; read with `fixed_order`
  CollectivesOptions collectives{};  ///< of the messages
};

/// What the ranks of a step know of each other.
struct StepShare {
  std::int64_t first = 0;             ///< the first sequence of this rank in the step
  std::int64_t tokens = 0;            ///< targets with a loss, of all ranks
  std::vector<std::int64_t> batches;  ///< micro-batches of each rank
};

/// What ranks that share the sequences of a step do between backward and the next forward. All make the same calls in
/// the same order. A rank without sequences takes part, too.
///
///     DataParallel<Exec> parallel({.ranks = ranks, .zero = ZeroStage::optimizer}, model.trained(), ledger);
///     Optimizer<Exec, T> optimizer(parallel.updated(), …);
///     …                                              // backward of this rank's sequences
///     optimizer.set_norm(exec, parallel.reduce(exec));
///     if (optimizer.update(exec, learning_rate)) parallel.publish(exec);
///
/// The gradients are cut into shards, one for each rank. A rank sums its shard over all ranks, and the sums of squares
/// of its pieces make the norm. Then either the sums go to all ranks, or each rank updates its shard and sends the
/// weights. Both send 2 N (n − 1) / n bytes a step and rank, for N bytes that n ranks divide.
///
/// The members are compiled into the library, for every execution space of Kokkos.
template <class Exec>
class DataParallel {
 public:
  /// Books and allocates everything.
  /// \param options    ranks and what they divide
  /// \param parameters with gradients of one type; they must outlive this object
  /// \param ledger     the memory is of the classes communication and gradients
  /// \throws NotSupported if an option is out of range
  /// \throws OutOfMemory with the ledger
  DataParallel(const DataParallelOptions& options, std::vector<Parameter> parameters, Ledger& ledger);

  /// What this rank updates: all parameters, or the part of each that is in its shard, as a vector.
  const std::vector<Parameter>& updated() const { return is_sharded() ? m_shard : m_parameters; }
  /// Which elements of each parameter are in the shard of this rank.
  const std::vector<ArrayRange>& own_ranges() const { return m_shards.of(ranks().rank()); }
  /// Whether this rank updates its shard alone.
  bool is_sharded() const { return m_options.zero != ZeroStage::none; }
  /// The ranks.
  Communicator& ranks() const { return m_collectives.communicator(); }

  /// Begins a step: tells the ranks of each other's sequences.
  /// \param exec      the instance
  /// \param sequences of this rank
  /// \param tokens    its targets with a loss
  /// \param batch     sequences of a micro-batch
  /// \throws NotSupported if a rank before the last that has sequences cuts a micro-batch short, or with
  ///                      `fixed_order` the order would depend on the ranks
  const StepShare& begin_step(const Exec& exec, std::int64_t sequences, std::int64_t tokens,
                              std::int64_t batch);

  /// Call it after the backward of each micro-batch. With `fixed_order` the gradients must be of this micro-batch
  /// alone, and are the sum of all after the last.
  void add_micro_batch(const Exec& exec);

  /// The sum of a number of each micro-batch, over all ranks, in the tree of `tree_sum`.
  /// \param exec   the instance
  /// \param values of the micro-batches of this rank
  double sum(const Exec& exec, std::span<const double> values);

  /// Sums the gradients of all ranks: whole, or in the shard of this rank alone.
  /// \param exec the instance
  /// \throws CommunicationError if a rank does not answer in time
  /// \returns the norm of the sums; not finite if one of them is not
  double reduce(const Exec& exec);

  /// Sends the updated weights, if each rank has updated its shard.
  /// \throws CommunicationError if a rank does not answer in time
  void publish(const Exec& exec);

 private:
  using memory_space = typename Exec::memory_space;

  std::vector<TensorRef> arrays(TensorRef Parameter::* member) const;
  void clear_gradients(const Exec& exec);
  double norm(const Exec& exec);

  DataParallelOptions m_options;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  std::vector<Parameter> m_parameters;
  Collectives<Exec> m_collectives;
  Shards m_shards;
  std::vector<Parameter> m_shard;  // the parts of the parameters in the shard of this rank
  std::optional<GradientTree<Exec>> m_tree;
  MemoryBlock<memory_space> m_squares;                        // of the pieces of this rank
  MemoryBlock<HostStagingSpace<memory_space>> m_all_squares;  // of all pieces
  StepShare m_share;
  std::int64_t m_done = 0;  // micro-batches of this rank in this step
};

}  // namespace kformer
