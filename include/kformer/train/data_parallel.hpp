// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
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
#include "kformer/parallel/pipeline_schedule.hpp"
#include "kformer/train/token_sequence.hpp"

/// \file
/// Ranks that share the sequences of a step of training.

namespace kformer {

/// What data-parallel ranks divide among them besides the sequences: the stages of ZeRO (Rajbhandari et al.,
/// arXiv:1910.02054).
enum class ZeroStage {
  none,       ///< every rank has all of the optimizer
  optimizer,  ///< each rank has the optimizer's states and master weights of its shard, and updates no other weights
  gradients  ///< each rank also keeps the sums of the gradients of its shard alone, and a group of gradients of the
             ///< backward that runs: all ranks reduce each group of each micro-batch
};

/// The names of the stages.
template <>
inline constexpr std::array<std::string_view, 3> names_of<ZeroStage> = {"none", "optimizer", "gradients"};

/// Options of `DataParallel`.
struct DataParallelOptions {
  std::shared_ptr<Communicator> ranks{};  ///< that share the sequences of a step; null: this one alone
  ZeroStage zero = ZeroStage::none;       ///< what they divide besides
  /// Whether sums over micro-batches are made in the tree of `tree_sum`, so that all numbers have the same bits for
  /// any number of ranks that `LeafShares::keep_order` allows. The memory of `GradientTree` is the price.
  bool fixed_order = false;
  std::int64_t micro_batches = 1;    ///< of this rank in a step, at most; read with `fixed_order`
  CollectivesOptions collectives{};  ///< of the messages
  /// Whether gradients are reduced while backward goes on: with the last micro-batch of the step, and with
  /// `ZeroStage::gradients` with each. All ranks agree. Numbers are the same.
  bool overlap = false;
  /// Neighbouring ranks that have the same sequences, and each a part of their tokens (`LayerOptions::context`). The trainer
  /// sets it.
  int context = 1;
  /// With `overlap`, in place of `collectives.chunk_bytes`: what is under way at a time. Groups of less than that are
  /// reduced together.
  std::size_t bucket_bytes = std::size_t(32) << 20;
};

/// Operations among ranks that have other parts of the same model, each of whom has other ranks that share its sequences.
template <class Exec>
struct ModelRanks {
  Collectives<Exec>* tensor = nullptr;  ///< of those that divide weights, or null
  Collectives<Exec>* stages = nullptr;  ///< of those that divide layers, or null
  Collectives<Exec>* ends =
      nullptr;  ///< of the first and the last stage, which have `Parameter::tied` ones, or null
  std::vector<std::size_t> parts{};  ///< with `stages`: where the parameters of each part of the model end
  std::vector<bool>
      waiting{};  ///< by parameter, whether `PipelineWork::weights` makes its gradient; empty: none
  bool adds_to_gradients =
      false;  ///< whether backward adds to the gradients, so that with `fixed_order` those of a micro-batch are cleared
              ///< when they have become part of the sum; not with `ZeroStage::gradients`
};

/// What the ranks of a step know of each other.
struct StepShare {
  std::int64_t first = 0;   ///< the first sequence of this rank in the step
  std::int64_t stride = 0;  ///< from the first sequence of a micro-batch to that of this rank's next one
  std::int64_t tokens = 0;  ///< targets with a loss, of all ranks
  ComputedTokens computed;  ///< of all ranks
  std::vector<std::int64_t> batches;  ///< micro-batches of each rank
};

/// What ranks that share the sequences of a step do between backward and the next forward. All make the same calls in
/// the same order. A rank without sequences takes part, too.
///
///     DataParallel<Exec> parallel({.ranks = ranks, .zero = ZeroStage::optimizer}, model.trained(),
///                                 model.gradient_groups(), ledger);
///     Optimizer<Exec, T> optimizer(parallel.updated(), …);
///     model.on_gradients([&](const Exec& exec, std::size_t group) { parallel.add_group(exec, group); });
///     for (…) {                                      // this rank's micro-batches
///       …                                            // forward and backward
///       parallel.add_micro_batch(exec);
///     }
///     optimizer.set_norm(exec, parallel.reduce(exec));
///     if (optimizer.update(exec, learning_rate)) parallel.publish(exec);
///
/// The gradients are cut into shards, one for each rank. A rank sums its shard over all ranks, and the sums of squares
/// of its pieces make the norm. Then either the sums go to all ranks, or each rank updates its shard and sends the
/// weights. Both send 2 N (n − 1) / n bytes a step and rank, for N bytes that n ranks divide. A shard has a run of each
/// group of parameters, so that all ranks have as much to do when a group is reduced.
///
/// With `ZeroStage::gradients` the gradients of a group may be overwritten when `add_group` has returned. The ranks send
/// N (n − 1) / n bytes for each micro-batch, and as many of weights a step. Micro-batches are dealt in turns
/// (`LeafShares`), because their gradients are summed over the ranks one by one. `Parameter::tied` gradients, which two stages
/// make, are added up by the model until `reduce`, and make a group each. With `fixed_order` the first stage has those of
/// each micro-batch of both, and hands in their group as any other; that of the `Parameter::copy` is 0, and gets the sum.
///
/// With `overlap` messages of a group are under way while backward computes the next ones: `add_group` begins them, and
/// helps those along that have begun. With `ZeroStage::gradients` the gradients of a group must then stay until the next
/// `add_group` has returned.
///
/// The members are compiled into the library, for every execution space of Kokkos.
template <class Exec>
class DataParallel {
 public:
  /// Books and allocates everything.
  /// \param options    ranks and what they divide
  /// \param parameters with gradients of one type; they must outlive this object
  /// \param groups     of all parameters, in the order in which backward completes their gradients
  /// \param ledger     the memory is of the classes communication and gradients
  /// \param model      the operations among the ranks that have other parts of the model
  /// \throws NotSupported if an option is out of range
  /// \throws OutOfMemory with the ledger
  DataParallel(const DataParallelOptions& options, std::vector<Parameter> parameters,
               std::vector<ParameterGroup> groups, Ledger& ledger, ModelRanks<Exec> model = {});

  /// What this rank updates: all parameters, or the part of each that is in its shard, as a vector.
  const std::vector<Parameter>& updated() const { return is_sharded() ? m_shard : m_parameters; }
  /// Which elements of each parameter are in the shard of this rank.
  const std::vector<ArrayRange>& own_ranges() const { return m_shards.of(ranks().rank()); }
  /// Whether this rank updates its shard alone.
  bool is_sharded() const { return m_options.zero != ZeroStage::none; }
  /// Whether this rank keeps the gradients of its shard alone.
  bool divides_gradients() const { return m_options.zero == ZeroStage::gradients; }
  /// The ranks.
  Communicator& ranks() const { return m_collectives.communicator(); }

  /// Begins a step: tells the ranks of each other's sequences.
  /// \param exec      the instance
  /// \param sequences of this rank
  /// \param tokens    its targets with a loss
  /// \param batch     sequences of a micro-batch
  /// \param computed  what of its sequences goes through the layers
  /// \throws NotSupported if a micro-batch before the last of the step is cut short, the micro-batches are not dealt as
  ///                      `ZeroStage::gradients` wants, or with `fixed_order` the order would depend on the ranks
  const StepShare& begin_step(const Exec& exec, std::int64_t sequences, std::int64_t tokens, std::int64_t batch,
                              const ComputedTokens& computed);

  /// Call it in the backward of each micro-batch when the gradients of a group are complete.
  /// \param exec  the instance
  /// \param group its number
  /// \throws CommunicationError if a rank does not answer in time
  void add_group(const Exec& exec, std::size_t group);

  /// With `ZeroStage::gradients`, in place of `add_group` where other ranks have a micro-batch and this one has none. What
  /// `reduce` does after the last of its micro-batches; a pipeline calls it where it keeps the order of the groups.
  void add_nothing(const Exec& exec, std::size_t group);

  /// Micro-batches in this step of the rank that has most.
  std::int64_t rounds() const { return std::ranges::max(m_share.batches); }

  /// Call it after the backward of each micro-batch. With `fixed_order` or `ZeroStage::gradients` the gradients must be
  /// of this micro-batch alone, and what is reduced is the sum of all after the last.
  void add_micro_batch(const Exec& exec);

  /// The same of one part of a model, in a pipeline, whose parts are not at the same micro-batch.
  /// \param exec        the instance
  /// \param part        of `ModelRanks::parts`
  /// \param micro_batch of this rank: 0, 1, … in this order
  /// \param work        backward, or weights, if there are `ModelRanks::waiting` ones: the gradients that it has made
  void add_part(const Exec& exec, std::size_t part, std::int64_t micro_batch, PipelineWork work);

  /// The sum of a number of each micro-batch, over all ranks, in the tree of `tree_sum`. Call it after `reduce`.
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

  void place_sums(Ledger& ledger);
  void check_blocks(std::span<const std::int64_t> sequences, std::int64_t batch) const;
  void check_turns(std::span<const std::int64_t> sequences, std::int64_t batch) const;
  void check_order() const;
  LeafShares shares() const;
  void clear_gradients(const Exec& exec, ParameterGroup group);
  void add_partial_gradients(const Exec& exec, ParameterGroup group);
  void add_up_ends(const Exec& exec, ParameterGroup group);
  void reduce_tied(const Exec& exec, std::size_t group);
  void gather_sum(const Exec& exec, ParameterGroup group);
  void take_own(const Exec& exec, ParameterGroup group, bool add);
  std::int64_t own_batches() const { return m_share.batches[static_cast<std::size_t>(ranks().rank())]; }
  bool is_last_micro_batch() const;
  bool is_tied(const ParameterGroup& group) const;
  std::size_t bytes_of(ParameterGroup group) const;
  void begin_shards(const Exec& exec, std::size_t group);
  void begin_group(const Exec& exec, std::size_t group);
  void begin_bucket(const Exec& exec);
  void finish_group(const Exec& exec);
  double norm(const Exec& exec);
  // Of some parameters: the squares of pieces, and whether each is of an array that ranks divide.
  struct Pieces {
    std::vector<double> squares;
    std::vector<bool> slices;
  };
  Pieces of_all_stages(const Exec& exec, Pieces own);
  double square_sum(const Exec& exec, const Pieces& pieces);
  template <class F>
  void for_pieces(F f) const;

  DataParallelOptions m_options;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  std::vector<Parameter> m_parameters;
  std::vector<ParameterGroup> m_groups;
  Collectives<Exec> m_collectives;
  ModelRanks<Exec> m_model;
  Shards m_shards;
  std::vector<Parameter> m_shard;    // the parts of the parameters in the shard of this rank
  MemoryBlock<memory_space> m_sums;  // their gradients, where these alone are kept
  std::optional<GradientTree<Exec>> m_tree;
  MemoryBlock<memory_space> m_squares;                        // of the pieces of this rank
  MemoryBlock<HostStagingSpace<memory_space>> m_all_squares;  // of all pieces
  std::vector<bool> m_is_slice;  // by piece: whether it is of an array that ranks divide
  StepShare m_share;
  std::int64_t m_done = 0;       // micro-batches of this rank in this step
  std::size_t m_next_group = 0;  // whose reduction has not begun, where it overlaps with the last backward
  ParameterGroup m_bucket;       // groups that wait for others
  std::optional<std::size_t> m_begun;  // a group, of which this rank adds up its shard when it is reduced
  std::vector<std::int64_t> m_leaves;  // by group: micro-batches of which it has done so in this step
};

}  // namespace kformer
