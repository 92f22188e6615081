// SPDX-License-Identifier: MIT
#include "kformer/parallel/communicator.hpp"

#include <algorithm>
#include <unordered_set>

namespace kformer {

void CommunicationLog::book(std::string_view operation, std::string_view region, std::uint64_t bytes,
                            double seconds) {
  const std::lock_guard lock(m_mutex);
  CommunicationCount& count = count_of(operation, region);
  ++count.calls;
  count.bytes += bytes;
  count.seconds += seconds;
}

void CommunicationLog::add_seconds(std::string_view operation, std::string_view region, double seconds) {
  const std::lock_guard lock(m_mutex);
  count_of(operation, region).seconds += seconds;
}

CommunicationCount& CommunicationLog::count_of(std::string_view operation, std::string_view region) {
  const auto entry =
      std::ranges::find_if(m_counts, [&](auto& c) { return c.operation == operation && c.region == region; });
  if (entry != m_counts.end()) return *entry;
  return m_counts.emplace_back(
      CommunicationCount{.operation = std::string(operation), .region = std::string(region)});
}

std::vector<CommunicationCount> CommunicationLog::counts() const {
  const std::lock_guard lock(m_mutex);
  return m_counts;
}

int Communicator::checked_member(std::span<const int> members, const std::string& name) const {
  const auto refuse = [&](const std::string& why) {
    std::string list;
    for (const int member : members) list += (list.empty() ? "" : ", ") + std::to_string(member);
    throw NotSupported("kformer::Communicator::subset: '" + name + "' of ranks " + list + ": " + why);
  };
  std::unordered_set<int> named;
  for (const int member : members) {
    if (member < 0 || member >= m_size)
      refuse("'" + m_name + "' has no rank " + std::to_string(member) + ", only 0 to " +
             std::to_string(m_size - 1));
    if (!named.insert(member).second) refuse("rank " + std::to_string(member) + " is named twice");
  }
  const auto self = std::ranges::find(members, m_rank);
  if (self == members.end()) refuse("rank " + std::to_string(m_rank) + " made the call and is not among them");
  return static_cast<int>(self - members.begin());
}

LoneCommunicator::LoneCommunicator(int rank, int size, const std::string& name)
    : Communicator(rank, size, name) {
  if (rank < 0 || rank >= size)
    throw NotSupported("kformer::LoneCommunicator: there can be no rank " + std::to_string(rank) + " of " +
                       std::to_string(size));
}

double LoneCommunicator::exchange(const InstanceRef&, const ExchangeName& exchange_name,
                                  std::span<const Outgoing> sends, std::span<const Incoming> receives) {
  if (!sends.empty() || !receives.empty())
    throw NotSupported(std::string("kformer::LoneCommunicator: ") + exchange_name.operation + ": rank " +
                       std::to_string(rank()) + " of " + std::to_string(size()) +
                       " is imagined, to forecast memory, and has nobody to talk to");
  return 0;
}

std::unique_ptr<Communicator> LoneCommunicator::subset(std::span<const int> members, const std::string& name) {
  const int place = checked_member(members, name);
  return std::make_unique<LoneCommunicator>(place, static_cast<int>(members.size()), name);
}

}  // namespace kformer
