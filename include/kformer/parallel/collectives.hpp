// SPDX-License-Identifier: MIT
#pragma once

#include <Kokkos_Core.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kformer/core/scalar.hpp"
#include "kformer/core/views.hpp"
#include "kformer/memory/ledger.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/parallel/communicator.hpp"
#include "kformer/parallel/shards.hpp"

/// \file
/// Collective operations on Views.

namespace kformer {

/// A type of elements that can be summed across ranks.
template <class T>
concept Summable = Scalar<T> || std::is_same_v<std::remove_const_t<T>, std::int32_t> ||
                   std::is_same_v<std::remove_const_t<T>, std::int64_t>;

/// Options of `Collectives`.
struct CollectivesOptions {
  std::size_t chunk_bytes = std::size_t(4)
                            << 20;  ///< longer arrays are summed and staged in parts of this size
  bool staged =
      false;  ///< whether messages go through host memory although the communicator takes memory of this space
  std::shared_ptr<CommunicationLog> log =
      nullptr;  ///< where calls are booked, in place of the communicator's own
};

namespace Impl {

/// The same elements of an array, of every rank.
struct RankParts {
  const std::byte* own;    ///< of this rank
  const std::byte* other;  ///< of the others, by rank
  std::size_t distance;    ///< bytes between two of them
  int rank, size;
};

/// `out[i]` = the sum over ranks, in the order of `tree_sum`; 16-bit elements are summed in float and rounded once.
/// `out` may be `parts.own`.
template <class T, class Exec>
void sum_parts(const Exec& exec, const RankParts& parts, std::byte* out, std::int64_t count);

}  // namespace Impl

/// The collective operations on arrays in the memory of `Exec`. All ranks of the communicator make the same calls in the
/// same order, with arrays of equal extents and types.
///
///     Collectives<Exec> ranks(communicator, {}, ledger);
///     ranks.all_reduce(exec, gradient, "gradients");
///
/// Arrays are Views of any rank without gaps, of float, double, bf16, f16, int32 or int64. Extents of zero are legal.
///
/// Calls read what was launched on `exec` before, and work launched on it afterwards sees the result. With MPI they fence
/// `exec` and wait for the other ranks; the sums are launched on `exec`, and the last of them may still run when a call
/// returns.
///
/// **Sums are the same on every rank and in every run**: they have the order of `tree_sum` over the ranks, whatever
/// the extents, the chunks and the library of messages. Nothing is summed by MPI.
///
/// Memory is allocated in the constructor alone, in the class communication: `receive_bytes` for sums, and twice
/// `chunk_bytes` in host memory if messages are staged, because the communicator does not take memory of this space.
///
/// The communicator's log counts, for every operation and region, the bytes that this rank sends. With n ranks, N bytes and
/// a part p_r for rank r:
///
/// | operation | bytes sent by rank r |
/// |---|---|
/// | `all_reduce` | N − p_r + (n − 1) p_r, which is 2 N (n − 1) / n if n divides the elements |
/// | `reduce_scatter`, `all_to_all` | N (n − 1) / n, where N is what the rank has at first |
/// | `all_gather` | (n − 1) N, where N is what the rank has at first |
/// | `reduce_shards` | N − p_r |
/// | `gather_shards` | (n − 1) p_r |
/// | `broadcast` | N times the ranks that it passes the array on to: at most ⌈log₂ n⌉, n − 1 together |
/// | `send`, `shift` | N |
/// | `receive` | 0 |
/// | `gather_values` | (n − 1) times its own 8-byte numbers |
/// | `barrier` | ⌈log₂ n⌉ |
///
/// Every call opens a region of its own name for Kokkos Tools, and what has begun is a section from its beginning to its
/// end.
template <class Exec>
class Collectives {
 public:
  using memory_space = typename Exec::memory_space;      ///< of the arrays
  using staging_space = HostStagingSpace<memory_space>;  ///< of messages that are staged
  using Sum = decltype(&Impl::sum_parts<float, Exec>);   ///< a kernel for one type of elements

  /// Books and allocates memory.
  /// \param communicator the ranks; shared, because its log outlives this object
  /// \param options      chunks and staging
  /// \param ledger       where the memory is booked
  /// \throws NotSupported if `chunk_bytes` is 0, or there is no communicator
  /// \throws OutOfMemory with the ledger
  Collectives(std::shared_ptr<Communicator> communicator, const CollectivesOptions& options, Ledger& ledger);
  ~Collectives();
  Collectives(Collectives&&) noexcept;             ///< takes over what has begun
  Collectives& operator=(Collectives&&) noexcept;  ///< takes over what has begun

  /// The ranks.
  Communicator& communicator() const { return *m_communicator; }
  /// Bytes of the memory for sums: (n − 1) ⌈chunk_bytes / n⌉, each rounded up to 64 bytes.
  std::size_t receive_bytes() const { return static_cast<std::size_t>(size() - 1) * m_slot_bytes; }

  /// x = the sum of the x of all ranks. NaN and infinity are summed like any value; integers wrap.
  /// \param exec   the instance
  /// \param x      of every rank
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if x has gaps
  template <AnyView V>
    requires Summable<typename V::value_type>
  void all_reduce(const Exec& exec, const V& x, std::string_view region = {}) {
    all_reduce(exec, output("all_reduce", x), sum_of<V>(), region);
  }

  /// y = part r of the sum of the x of all ranks, where r is this rank.
  /// \param exec   the instance
  /// \param x      n times the elements of y: part 0, part 1, …
  /// \param y      no part of x
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if an array has gaps, or x not n times the elements of y
  template <AnyView X, AnyView Y>
    requires Summable<typename Y::value_type>
  void reduce_scatter(const Exec& exec, const X& x, const Y& y, std::string_view region = {}) {
    require_equal_types<X, Y>();
    reduce_scatter(exec, input("reduce_scatter", x), output("reduce_scatter", y), sum_of<Y>(), region);
  }

  /// y = the x of rank 0, the x of rank 1, …
  /// \param exec   the instance
  /// \param x      of this rank; may be its part of y
  /// \param y      n times the elements of x
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if an array has gaps, or y not n times the elements of x
  template <AnyView X, AnyView Y>
    requires Summable<typename Y::value_type>
  void all_gather(const Exec& exec, const X& x, const Y& y, std::string_view region = {}) {
    require_equal_types<X, Y>();
    all_gather(exec, input("all_gather", x), output("all_gather", y), region);
  }

  /// Part s of y = part r of the x of rank s, where r is this rank.
  /// \param exec   the instance
  /// \param x      n equal parts, for rank 0, rank 1, …
  /// \param y      as many elements, no part of x
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if an array has gaps, if the elements are not as many, or n does not divide them
  template <AnyView X, AnyView Y>
    requires Summable<typename Y::value_type>
  void all_to_all(const Exec& exec, const X& x, const Y& y, std::string_view region = {}) {
    require_equal_types<X, Y>();
    all_to_all(exec, input("all_to_all", x), output("all_to_all", y), region);
  }

  /// x = the x of rank `root`.
  /// \param exec   the instance
  /// \param x      read on `root`, written elsewhere
  /// \param root   whose array it is
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if x has gaps
  /// \throws NotSupported if there is no such rank
  template <AnyView V>
    requires Summable<typename V::value_type>
  void broadcast(const Exec& exec, const V& x, int root, std::string_view region = {}) {
    broadcast(exec, output("broadcast", x), root, region);
  }

  /// Sends x to another rank, which calls `receive`.
  /// \param exec   the instance
  /// \param x      what to send
  /// \param peer   to whom
  /// \param region what the log calls it
  /// \throws CommunicationError if the peer does not answer in time
  /// \throws DimensionMismatch if x has gaps
  /// \throws NotSupported if there is no such rank, or it is this one
  template <AnyView V>
    requires Summable<typename V::value_type>
  void send(const Exec& exec, const V& x, int peer, std::string_view region = {}) {
    point_to_point(exec, "send", peer, input("send", x), -1, {}, region);
  }

  /// Receives x from another rank, which calls `send`.
  /// \param exec   the instance
  /// \param x      as many elements as are sent
  /// \param peer   from whom
  /// \param region what the log calls it
  /// \throws CommunicationError if the peer does not answer in time
  /// \throws DimensionMismatch if x has gaps
  /// \throws NotSupported if there is no such rank, or it is this one
  template <AnyView V>
    requires Summable<typename V::value_type>
  void receive(const Exec& exec, const V& x, int peer, std::string_view region = {}) {
    point_to_point(exec, "receive", -1, {}, peer, output("receive", x), region);
  }

  /// Sends x to one rank and receives y from one at the same time: the step of a ring.
  /// \param exec   the instance
  /// \param x      what to send
  /// \param to     to whom
  /// \param y      what to receive; no part of x
  /// \param from   from whom
  /// \param region what the log calls it
  /// \throws CommunicationError if a peer does not answer in time
  /// \throws DimensionMismatch if an array has gaps
  /// \throws NotSupported if there is no such rank, or it is this one
  template <AnyView X, AnyView Y>
    requires Summable<typename Y::value_type>
  void shift(const Exec& exec, const X& x, int to, const Y& y, int from, std::string_view region = {}) {
    require_equal_types<X, Y>();
    point_to_point(exec, "shift", to, input("shift", x), from, output("shift", y), region);
  }

  /// In the shard of this rank, each array = the sum of that array of all ranks. Elsewhere arrays stay as they are.
  /// \param exec   the instance
  /// \param arrays of float, double, bf16 or f16, without gaps
  /// \param shards of these arrays
  /// \param region what the log calls it
  /// \param some   the arrays to sum
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws NotSupported if the shards are for another number of ranks, or an array has another type
  void reduce_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                     std::string_view region = {}, SomeArrays some = {});

  /// Begins `reduce_shards`: messages travel while the instance computes. What was begun is done in this order, and no
  /// other call is made before `finish_reductions`.
  /// \param exec   the instance
  /// \param arrays of float, double, bf16 or f16, without gaps; they and the shards are in use until the end
  /// \param shards of these arrays
  /// \param region what the log calls it
  /// \param some   the arrays to sum
  /// \throws CommunicationError if MPI fails
  /// \throws NotSupported as `reduce_shards`
  void begin_reduce_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                           std::string_view region = {}, SomeArrays some = {});

  /// Goes on with what was begun if its message has arrived, without waiting, and begins the next message.
  /// \throws CommunicationError if MPI fails
  void poll(const Exec& exec);

  /// Waits for the messages of all that was begun. The last of the sums may still run.
  /// \throws CommunicationError if a rank does not answer in time
  void finish_reductions(const Exec& exec);

  /// In the shard of each rank, each array = that array of this rank.
  /// \param exec   the instance
  /// \param arrays without gaps, of any type
  /// \param shards of these arrays
  /// \param region what the log calls it
  /// \param some   the arrays to gather
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws NotSupported if the shards are for another number of ranks
  void gather_shards(const Exec& exec, std::span<const TensorRef> arrays, const Shards& shards,
                     std::string_view region = {}, SomeArrays some = {});

  /// Gathers a few numbers in host memory, of which every rank has some.
  /// \param exec   the instance
  /// \param values of all ranks, those of rank 0 first; each rank has filled in its own
  /// \param ends   (n) where those of each rank end, ascending; the last is the number of values
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  /// \throws DimensionMismatch if `ends` does not ascend to the number of values
  void gather_values(const Exec& exec, std::span<double> values, std::span<const std::int64_t> ends,
                     std::string_view region = {});

  /// The same, where every rank has as many.
  /// \param exec   the instance
  /// \param own    the numbers of this rank
  /// \param region what the log calls it
  /// \returns those of all ranks, rank 0 first
  /// \throws CommunicationError if a rank does not answer in time
  std::vector<double> gather_values(const Exec& exec, std::span<const double> own,
                                    std::string_view region = {});

  /// Returns when every rank has made the call, and the work launched on `exec` before is done.
  /// \param exec   the instance
  /// \param region what the log calls it
  /// \throws CommunicationError if a rank does not answer in time
  void barrier(const Exec& exec, std::string_view region = {});

 private:
  // Elements without their type.
  struct Array {
    std::byte* data = nullptr;
    std::int64_t count = 0;
    std::size_t element = 1;  // bytes

    std::size_t bytes() const { return static_cast<std::size_t>(count) * element; }
    Array part(std::int64_t first, std::int64_t elements) const {
      return {data ? data + static_cast<std::size_t>(first) * element : nullptr, elements, element};
    }
  };
  class Call;
  class ShardMessages;
  class Reduction;

  template <class X, class Y>
  static constexpr void require_equal_types() {
    static_assert(std::is_same_v<typename X::non_const_value_type, typename Y::value_type>,
                  "kformer::Collectives: both Views must have the same type of values");
  }
  template <class V>
  static Sum sum_of() {
    return &Impl::sum_parts<typename V::value_type, Exec>;
  }
  template <class V>
  static Array input(const char* function, const V& view) {
    static_assert(Kokkos::SpaceAccessibility<Exec, typename V::memory_space>::accessible,
                  "kformer::Collectives: the execution space cannot access this View");
    require_no_gaps(function, view.span_is_contiguous(), Impl::extents_of(view));
    using T = typename V::non_const_value_type;
    return {reinterpret_cast<std::byte*>(const_cast<T*>(view.data())), static_cast<std::int64_t>(view.size()),
            sizeof(T)};
  }
  template <class V>
  static Array output(const char* function, const V& view) {
    static_assert(!std::is_const_v<typename V::value_type>,
                  "kformer::Collectives: an output must be a View of values that are not const");
    return input(function, view);
  }
  static void require_no_gaps(const char* function, bool contiguous, const std::string& extents);

  int rank() const { return m_communicator->rank(); }
  int size() const { return m_communicator->size(); }
  void require_rank(const char* function, int peer) const;
  void require_shards(const char* function, const Shards& shards) const;
  void require_multiple(const char* function, const char* many, std::int64_t elements, const char* few,
                        std::int64_t of) const;
  Impl::RankParts parts(const Array& own) const;
  std::byte* slot(int peer) const;
  void copy(const Exec& exec, const Array& to, const Array& from) const;
  void forget_messages();
  void send(int peer, const Array& data);
  void receive(int peer, const Array& data);
  std::uint64_t bytes_to_send() const;
  // In which memory messages lie.
  InstanceRef instance(const Exec& exec) const { return InstanceRef(exec).with_host_memory(m_staged); }
  void stage(const Exec& exec);
  void unstage(const Exec& exec);
  void all_reduce(const Exec& exec, const Array& x, Sum sum, std::string_view region);
  void reduce_scatter(const Exec& exec, const Array& x, const Array& y, Sum sum, std::string_view region);
  void all_gather(const Exec& exec, const Array& x, const Array& y, std::string_view region);
  void all_to_all(const Exec& exec, const Array& x, const Array& y, std::string_view region);
  void broadcast(const Exec& exec, const Array& x, int root, std::string_view region);
  void point_to_point(const Exec& exec, const char* function, int to, const Array& x, int from, const Array& y,
                      std::string_view region);

  std::shared_ptr<Communicator> m_communicator;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  std::shared_ptr<CommunicationLog> m_log;
  bool m_staged;
  std::size_t m_slot_bytes;  // of what one rank sends at a time
  MemoryBlock<memory_space> m_received;
  MemoryBlock<staging_space> m_sends, m_receives;
  std::vector<Outgoing> m_outgoing;
  std::vector<Incoming> m_incoming, m_targets;  // the messages, and where they go from staging memory
  std::vector<std::unique_ptr<Reduction>> m_begun;
  char m_tokens[2] = {};  // of barriers
};

}  // namespace kformer
