// Two-level all-reduce: inside each host by shared memory, between hosts by messages.
//
// [Note: Two levels]
// Hosts with the same number of ranks: each rank gets a slice of its host's sum, ranks with the same place in their
// hosts all-reduce that slice, and the hosts put the slices together again: every network card carries its part. Hosts
// with unequal numbers: one rank a host speaks for it. When hosts are aligned (Topology::is_aligned) a host's sum is a
// subtree of [Note: Reduction order], and the whole has its bits. The parts carry the fingerprint of the whole, so that
// ranks that disagree about the whole find out: a sum and an average, say, have the same parts.
#include "trireme/comm/communicator_impl.h"

namespace trireme {

void Communicator::Impl::prepare_two_level(Communicator& self, const CallOptions& options) {
  if (inside_host) return;
  const Topology hosts = context->hosts.of_group(group.world_ranks);
  const int me = group.rank;
  for (int h = 1; h < hosts.num_hosts(); ++h) {
    hosts_are_equal = hosts_are_equal && hosts.ranks_of_host(h).size() == hosts.ranks_of_host(0).size();
  }
  auto inside = self.split(hosts.host_of(me), me, options);
  between_hosts = self.split(hosts.local_rank(me), hosts.host_of(me), options);
  inside_host = std::move(inside);
}

void all_reduce_two_level(Communicator::Impl& group, uint64_t fingerprint, Data data, ReduceOp op,
                          const CallOptions& options) {
  Communicator& inside = *group.inside_host;
  Communicator& between = *group.between_hosts;
  inside.impl().outer_fingerprint = between.impl().outer_fingerprint = fingerprint;
  CallOptions across = options;
  across.algorithm = Algorithm::kAuto;
  const ReduceOp partial = op == ReduceOp::kAverage ? ReduceOp::kSum : op;
  const size_t ranks = static_cast<size_t>(inside.size());
  const size_t slice = group.hosts_are_equal ? data.count / ranks : 0;
  if (slice > 0) {
    const Data even = data.part(0, slice * ranks);
    const Data own = data.part(static_cast<size_t>(inside.rank()) * slice, slice);
    // The sum lands in scratch: the peers still read this rank's data.
    group.arena.reset();
    const Bytes scratch = group.arena.take(own.num_bytes());
    const Data sum(scratch.data(), slice, data.type);
    inside.reduce_scatter(even, sum, partial, across);
    between.all_reduce(sum, partial, across);
    inside.all_gather(sum, even, across);
  }
  const Data rest = data.part(slice * ranks, data.count - slice * ranks);
  if (rest.count > 0) {
    inside.reduce(rest, rest, partial, 0, across);
    if (inside.rank() == 0) between.all_reduce(rest, partial, across);
    inside.broadcast(rest, 0, across);
  }
  finish(op, data.type, data.bytes, data.count, static_cast<size_t>(group.size()));
}

}  // namespace trireme
