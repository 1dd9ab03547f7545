#include "trireme/program/check/check_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {

void Channels::add(size_t from, size_t to, const PipelineMessage& message, std::vector<PipelineMessage> Channel::*end) {
  Channel& channel = channels_[{from, to}];
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

void Replicas::start(size_t number, const Instruction& collective) {
  if (number == sequence_.size()) sequence_.push_back(collective);
  if (sequence_[number] == collective) return;
  throw Error(fmt::format("another replica does {} in its place: they would wait for each other",
                          sequence_[number].to_string()));
}

int Replicas::slots_of(int replica) const {
  return across_.direct ? 1 : across_.partials_of_rank[static_cast<size_t>(replica)];
}

void Replicas::bring(int replica, const Sum& sum, const std::vector<PartialSum>& sums) {
  Brought& brought = brought_[sum];
  brought.sums.resize(static_cast<size_t>(count_));
  brought.sums[static_cast<size_t>(replica)] = sums;
  if (++brought.replicas < count()) return;
  std::vector<PartialSum> joined;
  for (const std::vector<PartialSum>& one : brought.sums) joined.insert(joined.end(), one.begin(), one.end());
  brought_.erase(sum);
  const PartialSum found = tree_.across(across_, std::move(joined)), wanted = tree_.whole(sum.update);
  if (found == wanted) return;
  throw Error(fmt::format("the sum of group {} is {} where the tree demands {}", sum.group, found.to_string(),
                          wanted.to_string()));
}

void Replicas::bring_micro_batches(const Sum& sum, const std::vector<int>& micro_batches) {
  Brought& brought = brought_[sum];
  std::vector<int>& all = brought.micro_batches;
  all.insert(all.end(), micro_batches.begin(), micro_batches.end());
  if (++brought.replicas < count()) return;
  std::sort(all.begin(), all.end());
  const PartialSum wanted = tree_.whole(sum.update);
  std::vector<int> expected(static_cast<size_t>(wanted.last - wanted.first));
  std::iota(expected.begin(), expected.end(), wanted.first);
  if (all != expected) {
    throw Error(fmt::format("the shares of group {} have {} scattered, and not each of {} once", sum.group,
                            counted(std::ssize(all), "micro-batch"), wanted.to_string()));
  }
  brought_.erase(sum);
}

}  // namespace trireme
