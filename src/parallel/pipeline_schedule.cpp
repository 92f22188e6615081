// SPDX-License-Identifier: MIT
#include "kformer/parallel/pipeline_schedule.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "kformer/core/error.hpp"

namespace kformer {

void PipelineShape::check() const {
  const auto refuse = [](const std::string& what) { throw NotSupported("kformer::PipelineShape: " + what); };
  if (ranks < 1 || parts < 1)
    refuse("a pipeline needs at least one rank and one part of the model on each, got " +
           std::to_string(ranks) + " and " + std::to_string(parts));
  if (parts > 1 && ranks == 1) refuse("one rank has the whole model in one part, got " + std::to_string(parts));
  if (parts > 1 && schedule != PipelineSchedule::interleaved)
    refuse("the schedule " + std::string(name_of(schedule)) + " has one part of the model on each rank, got " +
           std::to_string(parts) + "; choose interleaved");
}

namespace {

// The order in which micro-batches go through the parts of a rank: a group of as many as there are ranks through the
// first part, then through the next one. The last group is filled up.
std::vector<PipelineTask> in_groups(const PipelineShape& shape, PipelineWork work, std::int64_t micro_batches) {
  std::vector<PipelineTask> all;
  for (std::int64_t first = 0; first < micro_batches; first += shape.ranks)
    for (int i = 0; i < shape.parts; ++i)
      for (std::int64_t m = first; m < first + shape.ranks; ++m)
        all.push_back({work, work == PipelineWork::forward ? i : shape.parts - 1 - i, m});
  return all;
}

std::int64_t warm_up(const PipelineShape& shape, int rank) {
  const int behind = shape.ranks - 1 - rank;
  return shape.parts == 1 ? behind : 2 * behind + (shape.parts - 1) * shape.ranks;
}

}  // namespace

std::vector<PipelineTask> pipeline_work(const PipelineShape& shape, int rank, std::int64_t micro_batches) {
  shape.check();
  if (rank < 0 || rank >= shape.ranks || micro_batches < 0)
    throw NotSupported("kformer::pipeline_work: there is no rank " + std::to_string(rank) + " of " +
                       std::to_string(shape.ranks) + " with " + std::to_string(micro_batches) +
                       " micro-batches");
  const auto forwards = in_groups(shape, PipelineWork::forward, micro_batches),
             backwards = in_groups(shape, PipelineWork::backward, micro_batches);
  const std::int64_t count = std::ssize(forwards), before = std::min(count, warm_up(shape, rank));
  std::vector<PipelineTask> work;
  std::int64_t waiting = 0, finished = 0;  // gradients of weights
  // Leaves out what the last group was filled up with: what is left waits for nothing else.
  const auto add = [&](const PipelineTask& task) {
    if (task.micro_batch < micro_batches) work.push_back(task);
    return task.micro_batch < micro_batches;
  };
  const auto weights = [&] {
    add({PipelineWork::weights, 0, finished++});
    --waiting;
  };
  for (std::int64_t i = 0; i < before; ++i) add(forwards[static_cast<std::size_t>(i)]);
  for (std::int64_t i = 0; i < count; ++i) {
    if (before + i < count) add(forwards[static_cast<std::size_t>(before + i)]);
    const bool made = add(backwards[static_cast<std::size_t>(i)]);
    if (made && splits_backward(shape.schedule) && ++waiting > rank) weights();
  }
  while (waiting > 0) weights();
  return work;
}

std::int64_t pipeline_slots(const PipelineShape& shape, int rank, int part, std::int64_t micro_batches) {
  std::int64_t now = 0, most = 0;
  for (const PipelineTask& task : pipeline_work(shape, rank, micro_batches)) {
    if (task.part != part) continue;
    if (task.work == PipelineWork::forward) most = std::max(most, ++now);
    if (task.work == last_work(shape.schedule)) --now;
  }
  return most;
}

std::int64_t pipeline_tied_messages(const PipelineShape& shape) {
  return shape.schedule == PipelineSchedule::interleaved ? shape.ranks : 1;
}

namespace {

// The ranks of a pipeline, each at some task.
class Simulation {
 public:
  Simulation(const PipelineShape& shape, std::int64_t micro_batches, const PipelineTimes& times,
             std::int64_t tied_messages)
      : m_shape(shape), m_times(times), m_ranks(static_cast<std::size_t>(shape.ranks)) {
    m_tied.most = static_cast<std::size_t>(tied_messages);
    for (int r = 0; r < shape.ranks; ++r) rank(r).work = pipeline_work(shape, r, micro_batches);
  }

  double run() {
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int r = 0; r < m_shape.ranks; ++r)
        while (advance(r)) goes_on = true;
    }
    double end = 0;
    for (const Rank& r : m_ranks) {
      if (r.next < r.work.size())
        throw NotSupported("kformer::pipeline_makespan: the ranks of this schedule wait for each other");
      end = std::max(end, r.time);
    }
    return end;
  }

 private:
  // Messages from one rank to the next or the one before, in the order of their sending.
  struct Link {
    std::size_t most = 1;  // under way
    std::vector<double> sent, received;
  };
  struct Rank {
    std::vector<PipelineTask> work;
    std::size_t next = 0;
    double time = 0;
    std::vector<Link*> sends_on;  // the results of the last task
  };

  Rank& rank(int r) { return m_ranks[static_cast<std::size_t>(r)]; }
  // The links on which a rank sends or receives.
  std::vector<Link*> links(int r, const PipelineTask& task, bool in) {
    if (task.work == PipelineWork::weights) return {};
    const bool down = task.work == PipelineWork::forward;
    const int place = task.part * m_shape.ranks + r, last = m_shape.ranks * m_shape.parts - 1;
    std::vector<Link*> all;
    if (place != (down == in ? 0 : last)) {
      const int from = in ? (down ? r + m_shape.ranks - 1 : r + 1) % m_shape.ranks : r;
      all.push_back(&m_links[{from, down}]);
    }
    if (!down && last > 0 && m_tied.most > 0 && place == (in ? 0 : last)) all.push_back(&m_tied);
    return all;
  }
  double seconds(PipelineWork work) const {
    if (work == PipelineWork::forward) return m_times.forward;
    if (work == PipelineWork::weights) return m_times.weights;
    return m_times.backward + (splits_backward(m_shape.schedule) ? 0 : m_times.weights);
  }

  // Begins the next task of a rank when its inputs are there, or sends a result of the last one.
  bool advance(int r) {
    Rank& self = rank(r);
    if (!self.sends_on.empty()) {
      Link& out = *self.sends_on.front();
      const std::size_t message = out.sent.size();
      if (message >= out.received.size() + out.most) return false;
      if (message >= out.most) self.time = std::max(self.time, out.received[message - out.most]);
      out.sent.push_back(self.time);
      self.sends_on.erase(self.sends_on.begin());
      return true;
    }
    if (self.next == self.work.size()) return false;
    const PipelineTask& task = self.work[self.next];
    const std::vector<Link*> inputs = links(r, task, true);
    for (const Link* in : inputs)
      if (in->received.size() == in->sent.size()) return false;
    for (Link* in : inputs) {
      self.time = std::max(self.time, in->sent[in->received.size()]);
      in->received.push_back(self.time);
    }
    self.time += seconds(task.work);
    self.sends_on = links(r, task, false);
    ++self.next;
    return true;
  }

  PipelineShape m_shape;
  PipelineTimes m_times;
  std::vector<Rank> m_ranks;
  std::map<std::pair<int, bool>, Link> m_links;
  Link m_tied;
};

}  // namespace

double pipeline_makespan(const PipelineShape& shape, std::int64_t micro_batches, const PipelineTimes& times,
                         std::int64_t tied_messages) {
  return Simulation(shape, micro_batches, times, tied_messages).run();
}

}  // namespace kformer
