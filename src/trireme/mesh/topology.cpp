#include "trireme/mesh/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

/// "0-3, 6".
std::string print(const std::vector<int>& ranks) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    runs.push_back(end - i == 1 ? std::to_string(ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end - 1]));
    i = end;
  }
  return join(runs, ", ");
}

}  // namespace

Topology::Topology(std::vector<int> host_of_rank) : host_of_rank_(std::move(host_of_rank)) {
  const auto num_ranks = static_cast<int>(host_of_rank_.size());
  for (int rank = 0; rank < num_ranks; ++rank) {
    const int host = host_of_rank_[static_cast<size_t>(rank)];
    // Hosts without gaps are fewer than ranks; this also bounds the memory.
    if (host < 0 || host >= num_ranks) {
      throw UsageError(fmt::format("rank {} of {} is on host {}", rank, num_ranks, host),
                       "hosts are numbered from 0, without gaps");
    }
    if (host >= num_hosts()) ranks_of_host_.resize(static_cast<size_t>(host) + 1);
    auto& ranks = ranks_of_host_[static_cast<size_t>(host)];
    local_rank_.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(rank);
  }
  for (int host = 0; host < num_hosts(); ++host) {
    if (ranks_of_host_[static_cast<size_t>(host)].empty()) {
      throw UsageError(fmt::format("host {} of {} has no ranks", host, num_hosts()),
                       "hosts are numbered from 0, without gaps");
    }
  }
}

Topology Topology::from_names(std::span<const std::string> host_name_of_rank) {
  std::unordered_map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const std::string& name : host_name_of_rank) {
    hosts.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return Topology(std::move(hosts));
}

Topology Topology::uniform(int num_hosts, int ranks_per_host) {
  if (num_hosts < 1 || ranks_per_host < 1) {
    throw UsageError(fmt::format("{} hosts with {} ranks each are no topology", num_hosts, ranks_per_host));
  }
  std::vector<int> hosts;
  for (int host = 0; host < num_hosts; ++host) hosts.insert(hosts.end(), static_cast<size_t>(ranks_per_host), host);
  return Topology(std::move(hosts));
}

int Topology::host_of(int rank) const {
  if (rank < 0 || rank >= num_ranks()) throw UsageError(fmt::format("no rank {} among {}", rank, num_ranks()));
  return host_of_rank_[static_cast<size_t>(rank)];
}

const std::vector<int>& Topology::ranks_of_host(int host) const {
  if (host < 0 || host >= num_hosts()) throw UsageError(fmt::format("no host {} among {}", host, num_hosts()));
  return ranks_of_host_[static_cast<size_t>(host)];
}

int Topology::local_rank(int rank) const {
  host_of(rank);  // throws for a bad rank
  return local_rank_[static_cast<size_t>(rank)];
}

int Topology::local_size(int rank) const { return static_cast<int>(ranks_of_host(host_of(rank)).size()); }

Topology Topology::of_group(std::span<const int> ranks) const {
  std::unordered_map<int, int> numbers;
  std::vector<int> hosts;
  for (const int rank : ranks) {
    hosts.push_back(numbers.try_emplace(host_of(rank), static_cast<int>(numbers.size())).first->second);
  }
  return Topology(std::move(hosts));
}

bool Topology::is_aligned() const {
  if (num_hosts() <= 1) return true;
  const size_t each = static_cast<size_t>(local_size(0));
  if (!std::has_single_bit(each)) return false;
  return std::all_of(ranks_of_host_.begin(), ranks_of_host_.end(), [&](const std::vector<int>& ranks) {
    const bool consecutive = static_cast<size_t>(ranks.back() - ranks.front()) + 1 == ranks.size();
    const bool last = ranks.back() == num_ranks() - 1;
    return consecutive && (last ? ranks.size() <= each : ranks.size() == each);
  });
}

std::string Topology::to_string() const {
  const char* const ranks_word = num_ranks() == 1 ? "rank" : "ranks";
  if (num_hosts() <= 1)
    return fmt::format("{} {}, {} {}", num_hosts(), num_hosts() == 1 ? "host" : "hosts", num_ranks(), ranks_word);
  const int each = local_size(0);
  if (num_ranks() == num_hosts() * each && *this == uniform(num_hosts(), each)) {
    return fmt::format("{} hosts × {} {}", num_hosts(), each, each == 1 ? "rank" : "ranks");
  }
  std::vector<std::string> hosts;
  for (const auto& ranks : ranks_of_host_) hosts.push_back(print(ranks));
  return fmt::format("{} hosts: {}", num_hosts(), join(hosts, " | "));
}

}  // namespace trireme
