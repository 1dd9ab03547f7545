// All collective algorithms that work by messages. Each all-reduce is a file of its own; the rest is in
// collectives.cpp.
//
// All of them work for any number of ranks and any length, 0 included. `data` holds this rank's contribution before and
// the result after; an average is the caller's: it divides the sum, but for all_reduce_ordered and reduce-scatters,
// which do. Costs are for p ranks and n bytes.
#pragma once

#include <span>

#include "trireme/comm/algorithms/messenger.h"

namespace trireme {

/// Rank 0 receives from one rank after another, then sends to one after another: 2(p−1) rounds, (p−1)n each way at rank
/// 0.
void all_reduce_sequential(Messenger& messenger, Data data, ReduceOp op);
/// All send to rank 0 at once and it answers all at once: 2 rounds, still (p−1)n each way at rank 0.
void all_reduce_server(Messenger& messenger, Data data, ReduceOp op);
/// 2(p−1) rounds of n/p. Adds in ring order.
void all_reduce_ring(Messenger& messenger, Data data, ReduceOp op);
/// 1 round, (p−1)n sent by every rank.
void all_reduce_parallel(Messenger& messenger, Data data, ReduceOp op);
/// 2·lg p rounds, 2n(p−1)/p for powers of two; 2 rounds and up to 2n more otherwise. Nearest partner first follows
/// [Note: Reduction order] when p is a power of two; farthest first does not.
void all_reduce_recursive_halving(Messenger& messenger, Data data, ReduceOp op);
void all_reduce_farthest_first(Messenger& messenger, Data data, ReduceOp op);
/// Two binary trees, each with half of the data, in pipelined blocks: about 2·lg p rounds and 2n.
void all_reduce_tree(Messenger& messenger, Data data, ReduceOp op);
/// ⌈lg p⌉ rounds of n.
void all_reduce_butterfly(Messenger& messenger, Data data, ReduceOp op);
/// Everybody sends slice r to rank r, which adds in tree order, then returns it to everybody: 2 rounds, 2n(p−1)/p.
void all_reduce_ordered(Messenger& messenger, Data data, ReduceOp op);

/// Whether the result has the bits of [Note: Reduction order] for this many ranks.
bool keeps_order(Algorithm algorithm, int num_ranks);

void barrier_by_messages(Messenger& messenger);
void broadcast_by_messages(Messenger& messenger, Data data, int root);
void scatter_by_messages(Messenger& messenger, ConstData in, Data out, int root);
void gather_by_messages(Messenger& messenger, ConstData in, Data out, int root);
/// Member r contributes counts[r] elements to `out`.
void all_gather_by_messages(Messenger& messenger, ConstData in, Data out, std::span<const size_t> counts);
void reduce_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op, int root);
void reduce_scatter_by_messages(Messenger& messenger, ConstData in, Data out, ReduceOp op);
void reduce_scatter_v_by_messages(Messenger& messenger, ConstData in, Data out, std::span<const size_t> counts,
                                  ReduceOp op);
void all_to_all_by_messages(Messenger& messenger, ConstData in, std::span<const size_t> send_counts, Data out,
                            std::span<const size_t> recv_counts);

/// Everybody has `mine` of the whole and gets the rest: the second half of several all-reduces. Part r is at
/// part_of(data.count, p, r).
void all_gather_parts(Messenger& messenger, Data data);

}  // namespace trireme
