// Which rank is on which host.
//
// A value: immutable, comparable, printable. Hosts are numbered 0 to num_hosts() - 1, each with a rank at least.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace trireme {

class Topology {
 public:
  /// No ranks.
  Topology() = default;
  /// Throws UsageError for a negative host and for a host number without ranks.
  explicit Topology(std::vector<int> host_of_rank);
  /// Ranks with the same name share a host; hosts are numbered in the order of their first ranks.
  static Topology from_names(std::span<const std::string> host_name_of_rank);
  static Topology one_host(int num_ranks) { return uniform(1, num_ranks); }
  static Topology uniform(int num_hosts, int ranks_per_host);

  int num_ranks() const { return static_cast<int>(host_of_rank_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_of_host_.size()); }
  const std::vector<int>& host_of_rank() const { return host_of_rank_; }
  /// These throw UsageError for a rank or host that is not there.
  int host_of(int rank) const;
  const std::vector<int>& ranks_of_host(int host) const;
  /// The position of a rank among the ranks of its host, and their number.
  int local_rank(int rank) const;
  int local_size(int rank) const;
  bool same_host(int a, int b) const { return host_of(a) == host_of(b); }

  /// The part with these ranks only, renumbered in this order: the topology of a group.
  Topology of_group(std::span<const int> ranks) const;

  /// True if the ranks of each host are consecutive and every host has the same power of two of them; the last may
  /// have fewer. Then the sums inside hosts are whole subtrees of [Note: Reduction order].
  bool is_aligned() const;

  /// "1 host, 4 ranks", "2 hosts × 4 ranks", "2 hosts: 0-3 | 4-6".
  std::string to_string() const;
  bool operator==(const Topology& other) const { return host_of_rank_ == other.host_of_rank_; }

 private:
  std::vector<int> host_of_rank_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> ranks_of_host_;
};

}  // namespace trireme
