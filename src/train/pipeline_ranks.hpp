// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kformer/core/option_checks.hpp"
#include "kformer/memory/transfer.hpp"
#include "kformer/model/layer_weights.hpp"
#include "kformer/model/llama_config.hpp"
#include "kformer/parallel/collectives.hpp"
#include "kformer/parallel/pipeline_links.hpp"
#include "kformer/train/pipeline.hpp"
#include "train/require.hpp"

/// \file
/// What ranks of a pipeline exchange.

namespace kformer::Impl {

/// A way between two ranks, for messages of one size: one sends, the other receives. A message travels while its sender goes
/// on, until as many follow as the sender has buffers.
template <class Exec, class T>
class PipelineLink {
 public:
  using memory_space = typename Exec::memory_space;
  using staging_space = HostStagingSpace<memory_space>;
  using Matrix = BlockMatrix<memory_space, T>;

  /// \param pairs  the two ranks, for each message that may be under way
  /// \param sends  whether this is the one that sends, and needs a buffer for each
  /// \param log    where messages are booked
  /// \param region what the log calls it
  /// \param rows   of a message
  /// \param columns of a message
  /// \param ledger the memory is of the class communication
  PipelineLink(std::vector<std::shared_ptr<Communicator>> pairs, bool sends,
               std::shared_ptr<CommunicationLog> log, std::string region, std::int64_t rows,
               std::int64_t columns, Ledger& ledger)
      : m_pairs(std::move(pairs)),
        m_log(std::move(log)),
        m_region(std::move(region)),
        m_ledger(ledger.shared_from_this()),
        m_buffers(sends ? m_pairs.size() : 1) {
    const std::size_t bytes = static_cast<std::size_t>(rows * columns) * sizeof(T);
    for (Buffer& buffer : m_buffers) {
      buffer.block = ledger.allocate<memory_space>(MemoryClass::communication, "Trainer::pipeline", bytes);
      if (!host_reaches<memory_space> && !m_pairs.front()->takes_device_memory())
        buffer.staging =
            ledger.allocate<staging_space>(MemoryClass::communication, "Trainer::pipeline_staging", bytes);
      buffer.message = matrix_in<T>(buffer.block, 0, rows, columns);
    }
  }

  /// Where the next message is to be written. Waits until the last one from there has been received.
  const Matrix& outgoing() {
    finish(m_next);
    return m_buffers[m_next].message;
  }

  /// Sends what is there.
  void send(const Exec& exec) {
    Buffer& buffer = m_buffers[m_next];
    if (stages())
      transfer<staging_space, memory_space>(exec, *m_ledger, buffer.staging.data(), buffer.block.data(),
                                            buffer.block.bytes());
    const Outgoing message{other(), data(buffer), buffer.block.bytes()};
    buffer.seconds =
        m_pairs[m_next]->begin(instance(exec), {"send", m_region, m_log}, std::span(&message, 1), {});
    buffer.is_sent = true;
    advance();
  }

  /// Waits until all messages have been received.
  void finish() {
    for (std::size_t i = 0; i < m_buffers.size(); ++i) finish(i);
  }

  /// Waits for the next message. It lasts until the next call.
  const Matrix& receive(const Exec& exec) {
    Buffer& buffer = m_buffers.front();
    const Incoming message{other(), data(buffer), buffer.block.bytes()};
    const double seconds =
        m_pairs[m_next]->exchange(instance(exec), {"receive", m_region, m_log}, {}, std::span(&message, 1));
    m_log->book("receive", m_region, 0, seconds);
    if (stages())
      transfer<memory_space, staging_space>(exec, *m_ledger, buffer.block.data(), buffer.staging.data(),
                                            buffer.block.bytes());
    advance();
    return buffer.message;
  }

 private:
  struct Buffer {
    MemoryBlock<memory_space> block;
    MemoryBlock<staging_space> staging;
    Matrix message;
    bool is_sent = false;
    double seconds = 0;  // of the message that is under way
  };

  void finish(std::size_t i) {
    Buffer& buffer = m_buffers[i];
    if (!buffer.is_sent) return;
    const auto begin = std::chrono::steady_clock::now();
    m_pairs[i]->finish();
    buffer.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    m_log->book("send", m_region, buffer.block.bytes(), buffer.seconds);
    buffer.is_sent = false;
  }
  void advance() { m_next = (m_next + 1) % m_pairs.size(); }
  int other() const { return 1 - m_pairs.front()->rank(); }
  bool stages() const { return m_buffers.front().staging.bytes() > 0; }
  std::byte* data(Buffer& buffer) { return stages() ? buffer.staging.data() : buffer.block.data(); }
  InstanceRef instance(const Exec& exec) const { return InstanceRef(exec).with_host_memory(stages()); }

  std::vector<std::shared_ptr<Communicator>> m_pairs;
  std::shared_ptr<CommunicationLog> m_log;
  std::string m_region;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  std::vector<Buffer> m_buffers;
  std::size_t m_next = 0;  // pair, of the next message
};

/// The ranks of a pipeline, as one of them sees them.
template <class Exec, class T>
class PipelineRanks {
 public:
  using Link = PipelineLink<Exec, T>;
  using TiedLink = PipelineLink<Exec, compute_t<T>>;

  /// \param tied_words of an embedding whose gradient of each micro-batch goes from the last stage to the first; 0: none does
  /// \throws NotSupported if an option is out of range
  PipelineRanks(const PipelineOptions& options, const LlamaConfig& config, std::int64_t rows,
                std::int64_t tied_words, Ledger& ledger)
      : m_shape(checked_shape(options, config)),
        m_most(options.micro_batches > 0 ? options.micro_batches : 4 * m_shape.ranks),
        m_ranks(options.ranks->ranks(), {.chunk_bytes = 1 << 16}, ledger) {
    const PipelineLinks& links = *options.ranks;
    const auto& log = links.ranks()->shared_log();
    const bool is_end = rank() == 0 || rank() == last();
    if (is_end && config.tie_word_embeddings)
      m_ends.emplace(links.ends(), CollectivesOptions{.log = log}, ledger);
    if (tied_words > 0) {
      const auto pairs = pairs_of_ends(links, ledger.counts_only());
      if (is_end)
        m_tied.emplace(pairs, rank() == last(), log, "gradients of the embedding", tied_words,
                       config.hidden_size, ledger);
    }
    const auto connect = [&](std::optional<Link>& link, const auto& pair, bool sends, const char* region,
                             int without) {
      if (rank() != without || m_shape.parts > 1)
        link.emplace(std::vector{pair}, sends, log, region, rows, config.hidden_size, ledger);
    };
    connect(m_states_out, links.states_out(), true, "states", last());
    connect(m_states_in, links.states_in(), false, "states", 0);
    connect(m_gradients_out, links.gradients_out(), true, "gradients of states", 0);
    connect(m_gradients_in, links.gradients_in(), false, "gradients of states", last());
  }

  /// The order of the work, and what is divided.
  const PipelineShape& shape() const { return m_shape; }
  /// This rank.
  int rank() const { return m_ranks.communicator().rank(); }
  /// The rank with the head.
  int last() const { return m_shape.ranks - 1; }
  /// All of them.
  Collectives<Exec>& ranks() { return m_ranks; }
  /// The first and the last, if they have the same embedding and this is one of them.
  Collectives<Exec>* ends() { return m_ends ? &*m_ends : nullptr; }
  /// Micro-batches that a part of this rank has at a time.
  std::int64_t slots(int part) const {
    return std::max<std::int64_t>(1, pipeline_slots(m_shape, rank(), part, m_most));
  }
  /// The layers of a part of this rank.
  ModelPart layers(int part, std::int64_t all) const {
    const std::int64_t place = part * m_shape.ranks + rank(), parts = m_shape.ranks * m_shape.parts;
    return {all * place / parts, all * (place + 1) / parts};
  }

  /// To the next part and to the one before.
  Link& states_out() { return *m_states_out; }
  Link& states_in() { return *m_states_in; }
  Link& gradients_out() { return *m_gradients_out; }
  Link& gradients_in() { return *m_gradients_in; }
  /// Of the gradient of a tied embedding, from the last stage to the first; null where there is none.
  TiedLink* tied() { return m_tied ? &*m_tied : nullptr; }
  /// Waits until all that was sent has been received.
  void finish() {
    for (auto* link : {&m_states_out, &m_gradients_out})
      if (*link) (*link)->finish();
    if (m_tied) m_tied->finish();
  }

 private:
  static PipelineShape checked_shape(const PipelineOptions& options, const LlamaConfig& config) {
    const PipelineShape shape{options.schedule, options.ranks->ranks()->size(), options.parts};
    on_behalf_of("Trainer", [&] { shape.check(); });
    Require{"Trainer"}(config.num_hidden_layers >= shape.ranks * shape.parts, "a pipeline of ", shape.ranks,
                       " ranks with ", shape.parts, " parts each needs as many layers, got ",
                       config.num_hidden_layers, " (num_hidden_layers)");
    return shape;
  }

  // One for each message of `tied` that may be under way. All ranks make as many; forecasts, of which some make more than
  // others, exchange nothing and make none.
  std::vector<std::shared_ptr<Communicator>> pairs_of_ends(const PipelineLinks& links, bool counts_only) const {
    std::vector<std::shared_ptr<Communicator>> pairs{links.ends()};
    std::vector<int> members(static_cast<std::size_t>(links.ends()->size()));
    std::iota(members.begin(), members.end(), 0);
    while (std::ssize(pairs) < pipeline_tied_messages(m_shape))
      pairs.push_back(counts_only ? links.ends() : links.ends()->subset(members, "ends"));
    pairs.resize(static_cast<std::size_t>(std::min<std::int64_t>(m_most, std::ssize(pairs))));
    return pairs;
  }

  PipelineShape m_shape;
  std::int64_t m_most;  // micro-batches of a step
  Collectives<Exec> m_ranks;
  std::optional<Collectives<Exec>> m_ends;
  std::optional<Link> m_states_out, m_states_in, m_gradients_out, m_gradients_in;
  std::optional<TiedLink> m_tied;
};

}  // namespace kformer::Impl
