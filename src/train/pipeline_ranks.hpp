// SPDX-License-Identifier: MIT
#pragma once

#include <chrono>
#include <memory>
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

/// One way between two ranks, for messages of one size: one sends, the other receives. A message travels while its sender
/// goes on, until that has the next one.
template <class Exec, class T>
class PipelineLink {
 public:
  using memory_space = typename Exec::memory_space;
  using staging_space = HostStagingSpace<memory_space>;
  using Matrix = BlockMatrix<memory_space, T>;

  /// \param pair   the two ranks
  /// \param log    where messages are booked
  /// \param region what the log calls it
  /// \param rows   of a message
  /// \param columns of a message
  /// \param ledger the memory is of the class communication
  PipelineLink(std::shared_ptr<Communicator> pair, std::shared_ptr<CommunicationLog> log, std::string region,
               std::int64_t rows, std::int64_t columns, Ledger& ledger)
      : m_pair(std::move(pair)),
        m_log(std::move(log)),
        m_region(std::move(region)),
        m_ledger(ledger.shared_from_this()) {
    const std::size_t bytes = static_cast<std::size_t>(rows * columns) * sizeof(T);
    m_block = ledger.allocate<memory_space>(MemoryClass::communication, "Trainer::pipeline", bytes);
    if (!host_reaches<memory_space> && !m_pair->takes_device_memory())
      m_staging =
          ledger.allocate<staging_space>(MemoryClass::communication, "Trainer::pipeline_staging", bytes);
    m_message = matrix_in<T>(m_block, 0, rows, columns);
  }

  /// Where the next message is to be written. Waits until the last one has been received.
  const Matrix& outgoing() {
    finish();
    return m_message;
  }

  /// Sends what is there.
  void send(const Exec& exec) {
    if (stages())
      transfer<staging_space, memory_space>(exec, *m_ledger, m_staging.data(), m_block.data(), m_block.bytes());
    const Outgoing message{other(), data(), m_block.bytes()};
    m_seconds = m_pair->begin(instance(exec), {"send", m_region, m_log}, std::span(&message, 1), {});
    m_sends = true;
  }

  /// Waits until the last message has been received.
  void finish() {
    if (!m_sends) return;
    const auto begin = std::chrono::steady_clock::now();
    m_pair->finish();
    m_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    m_log->book("send", m_region, m_block.bytes(), m_seconds);
    m_sends = false;
  }

  /// Waits for the next message. It lasts until the next call.
  const Matrix& receive(const Exec& exec) {
    const Incoming message{other(), data(), m_block.bytes()};
    const double seconds =
        m_pair->exchange(instance(exec), {"receive", m_region, m_log}, {}, std::span(&message, 1));
    m_log->book("receive", m_region, 0, seconds);
    if (stages())
      transfer<memory_space, staging_space>(exec, *m_ledger, m_block.data(), m_staging.data(), m_block.bytes());
    return m_message;
  }

 private:
  int other() const { return 1 - m_pair->rank(); }
  bool stages() const { return m_staging.bytes() > 0; }
  std::byte* data() { return stages() ? m_staging.data() : m_block.data(); }
  InstanceRef instance(const Exec& exec) const { return InstanceRef(exec).with_host_memory(stages()); }

  std::shared_ptr<Communicator> m_pair;
  std::shared_ptr<CommunicationLog> m_log;
  std::string m_region;
  std::shared_ptr<Ledger> m_ledger;  // counts transfers
  MemoryBlock<memory_space> m_block;
  MemoryBlock<staging_space> m_staging;
  Matrix m_message;
  bool m_sends = false;
  double m_seconds = 0;  // of the message that is under way
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
    if (is_end && tied_words > 0)
      m_tied.emplace(links.ends(), log, "gradients of the embedding", tied_words, config.hidden_size, ledger);
    const auto connect = [&](std::optional<Link>& link, const auto& pair, const char* region, int without) {
      if (rank() != without || m_shape.parts > 1)
        link.emplace(pair, log, region, rows, config.hidden_size, ledger);
    };
    connect(m_states_out, links.states_out(), "states", last());
    connect(m_states_in, links.states_in(), "states", 0);
    connect(m_gradients_out, links.gradients_out(), "gradients of states", 0);
    connect(m_gradients_in, links.gradients_in(), "gradients of states", last());
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

  PipelineShape m_shape;
  std::int64_t m_most;  // micro-batches of a step
  Collectives<Exec> m_ranks;
  std::optional<Collectives<Exec>> m_ends;
  std::optional<Link> m_states_out, m_states_in, m_gradients_out, m_gradients_in;
  std::optional<TiedLink> m_tied;
};

}  // namespace kformer::Impl
