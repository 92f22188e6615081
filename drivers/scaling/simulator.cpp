// SPDX-License-Identifier: MIT
#include "scaling/simulator.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <queue>
#include <string>
#include <tuple>

#include "kformer/core/error.hpp"

namespace kformer::drivers {

namespace {

// When something ends, and for whom: a rank, or −1 − the number of a group.
using Event = std::pair<double, int>;
using Events = std::priority_queue<Event, std::vector<Event>, std::greater<>>;

class Simulation {
 public:
  explicit Simulation(const SimulatedRanks& ranks)
      : m_ranks(ranks), m_next(ranks.programs.size()), m_started(ranks.programs.size()) {
    m_result.computed.resize(ranks.programs.size());
    for (const auto& groups : ranks.groups)
      for (const int group : groups) {
        if (group >= std::ssize(m_members)) m_members.resize(static_cast<std::size_t>(group) + 1);
      }
    for (std::size_t r = 0; r < ranks.groups.size(); ++r)
      for (const int group : ranks.groups[r])
        m_members[static_cast<std::size_t>(group)].push_back(static_cast<int>(r));
    m_arrived.resize(m_members.size());
  }

  SimulatedTime run() {
    for (int r = 0; r < std::ssize(m_next); ++r) go_on(r);
    while (!m_computing.empty() || !m_waiting.empty()) next_event();
    for (std::size_t r = 0; r < m_next.size(); ++r)
      if (m_next[r] < m_ranks.programs[r]->size())
        throw Error("kformer-scaling: simulated rank " + std::to_string(r) + " waits for ever");
    m_result.seconds = m_now;
    return m_result;
  }

 private:
  // Of a second, what a rank that computes gets of a core.
  double rate() const {
    return m_ranks.cores > 0 ? std::min(1.0, m_ranks.cores / static_cast<double>(m_computing.size())) : 1;
  }

  // All ranks that compute get on at the same rate, so that their ends keep their order on the clock of work done.
  void next_event() {
    const double infinity = std::numeric_limits<double>::infinity();
    const double end = m_computing.empty() ? infinity : m_now + (m_computing.top().first - m_work) / rate();
    const double other = m_waiting.empty() ? infinity : m_waiting.top().first;
    const double then = std::max(m_now, std::min(end, other));
    if (end <= other) {
      const int rank = m_computing.top().second;
      m_work = m_computing.top().first;
      m_computing.pop();
      m_now = then;
      m_result.computed[static_cast<std::size_t>(rank)] += m_now - m_started[static_cast<std::size_t>(rank)];
      step(rank);
      return;
    }
    if (!m_computing.empty()) m_work += (then - m_now) * rate();
    m_now = then;
    const int who = m_waiting.top().second;
    m_waiting.pop();
    if (who >= 0) return end_message(who);
    for (const int rank : m_members[static_cast<std::size_t>(-1 - who)]) step(rank);
  }

  void step(int rank) {
    ++m_next[static_cast<std::size_t>(rank)];
    go_on(rank);
  }

  // Until it waits for something.
  void go_on(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (; m_next[r] < m_ranks.programs[r]->size(); ++m_next[r]) {
      const SimulatedOperation& operation = (*m_ranks.programs[r])[m_next[r]];
      switch (operation.kind) {
        case SimulatedOperation::Kind::compute:
          m_started[r] = m_now;
          m_computing.emplace(m_work + operation.seconds, rank);
          return;
        case SimulatedOperation::Kind::exchange: {
          const int group = m_ranks.groups[r][static_cast<std::size_t>(operation.group)];
          const auto g = static_cast<std::size_t>(group);
          if (++m_arrived[g] < std::ssize(m_members[g])) return;
          m_arrived[g] = 0;
          m_waiting.emplace(m_now + operation.seconds, -1 - group);
          return;
        }
        case SimulatedOperation::Kind::send: {
          const int to = rank + operation.peer;
          Link& link = m_links[{rank, to, operation.channel}];
          link.sender_waits = link.sent;
          if (link.sent) return;
          link.sent = true;
          if (link.receiver_waits) begin_message(to);
          break;
        }
        case SimulatedOperation::Kind::receive: {
          Link& link = m_links[{rank + operation.peer, rank, operation.channel}];
          link.receiver_waits = true;
          if (link.sent) begin_message(rank);
          return;
        }
      }
    }
  }

  const SimulatedOperation& operation_of(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return (*m_ranks.programs[r])[m_next[r]];
  }

  // What a rank waits for.
  void begin_message(int receiver) { m_waiting.emplace(m_now + operation_of(receiver).seconds, receiver); }

  void end_message(int receiver) {
    const SimulatedOperation& operation = operation_of(receiver);
    const int sender = receiver + operation.peer;
    Link& link = m_links[{sender, receiver, operation.channel}];
    link.sent = link.receiver_waits = false;
    step(receiver);
    if (link.sender_waits) go_on(sender);
  }

  // A message that has been sent and not received, and who waits.
  struct Link {
    bool sent = false, sender_waits = false, receiver_waits = false;
  };

  const SimulatedRanks& m_ranks;
  std::vector<std::size_t> m_next;  // operation of each rank
  std::vector<double> m_started;    // when it began, of those that compute
  std::vector<std::vector<int>> m_members;
  std::vector<int> m_arrived;                         // ranks of each group
  std::map<std::tuple<int, int, int>, Link> m_links;  // sender, receiver, channel
  Events m_computing;                                 // by the clock of work
  Events m_waiting;                                   // by the clock
  double m_now = 0, m_work = 0;
  SimulatedTime m_result;
};

}  // namespace

SimulatedTime simulate(const SimulatedRanks& ranks) { return Simulation(ranks).run(); }

}  // namespace kformer::drivers
