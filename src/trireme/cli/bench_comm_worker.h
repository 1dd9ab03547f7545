// One of our ranks in `trireme bench comm`: waits for commands and measures. See bench_comm_crew.h for the protocol.
//
//   measure OPERATION ALGORITHM registered|user BYTES ROUNDS   →  ok ALGORITHM µs µs …
//   traffic ALGORITHM BYTES       one all-reduce               →  ok, for each rank: messages and bytes sent, messages
//                                                                 and bytes received, rounds
//   exchange BYTES ROUNDS         right and from the left      →  ok µs µs …
//   barrier ROUNDS                                             →  ok µs µs …
//   combine BYTES, copy BYTES     on all ranks at once         →  ok µs µs …
#pragma once

namespace trireme::cli {

/// `threads`: that many ranks in this process; 0: this process is one rank, of a job that the environment describes.
/// `bind`: each rank to a core of its own, where there are enough. Returns at the end of rank 0's input.
void run_bench_comm_worker(int threads, bool bind);

}  // namespace trireme::cli
