#include "trireme/program/check_shared.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

void Channels::add(int from, int to, const PipelineMessage& message, std::vector<PipelineMessage> Channel::*end) {
  Channel& channel = between(from, to);
  const size_t number = (channel.*end).size();
  (channel.*end).push_back(message);
  if (number >= std::min(channel.sent.size(), channel.posted.size())) return;
  if (channel.sent[number] == channel.posted[number]) return;
  throw Error(fmt::format("message {} from rank {} to rank {} is {} where it is sent, and {} where it is received",
                          number, from, to, channel.sent[number].to_string(), channel.posted[number].to_string()));
}

void Channels::finish() const {
  for (const auto& [ends, channel] : channels_) {
    const size_t both = std::min(channel.sent.size(), channel.posted.size());
    if (channel.sent.size() == channel.posted.size()) continue;
    const bool unreceived = channel.sent.size() > both;
    throw Error(fmt::format("rank {} {} rank {} {}, which is never {}", unreceived ? ends.first : ends.second,
                            unreceived ? "sends" : "receives from", unreceived ? ends.second : ends.first,
                            (unreceived ? channel.sent : channel.posted)[both].to_string(),
                            unreceived ? "received" : "sent"));
  }
}

void Replicas::start(int replica, const Instruction& collective) {
  std::vector<Instruction>& own = started_[static_cast<size_t>(replica)];
  own.push_back(collective);
  const size_t number = own.size() - 1;
  for (const std::vector<Instruction>& other : started_) {
    if (number >= other.size() || other[number] == collective) continue;
    throw Error(
        fmt::format("another replica does {} in its place: they would wait for each other", other[number].to_string()));
  }
}

bool Replicas::all_started(int replica) const {
  const size_t own = started_[static_cast<size_t>(replica)].size();
  return std::all_of(started_.begin(), started_.end(), [own](const auto& other) { return other.size() >= own; });
}

int Replicas::slots_of(int replica) const {
  return across_.direct ? 1 : across_.partials_of_rank[static_cast<size_t>(replica)];
}

void Replicas::bring(int replica, int stage, int group, int update, const std::vector<PartialSum>& sums) {
  auto& all = brought_[{stage, group, update}];
  all.resize(started_.size());
  all[static_cast<size_t>(replica)] = sums;
  std::vector<PartialSum> joined;
  for (const std::vector<PartialSum>& one : all) {
    if (one.empty()) return;
    joined.insert(joined.end(), one.begin(), one.end());
  }
  const PartialSum sum = tree_.across(across_, std::move(joined));
  if (sum == tree_.whole(update)) return;
  throw Error(fmt::format("the sum of group {} is {} where the tree demands {}", group, sum.to_string(),
                          tree_.whole(update).to_string()));
}

}  // namespace trireme
