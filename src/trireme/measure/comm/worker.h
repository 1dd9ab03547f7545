// One of our ranks in `trireme bench comm`: waits for commands and measures. See crew.h for the protocol.
//
//   measure OPERATION ALGORITHM registered|user BYTES ROUNDS   →  ok ALGORITHM µs µs …
//   traffic ALGORITHM BYTES       one all-reduce               →  ok, for each rank: messages and bytes sent, messages
//                                                                 and bytes received, rounds
//   exchange BYTES ROUNDS         right and from the left      →  ok µs µs …
//   barrier ROUNDS                                             →  ok µs µs …
//   combine BYTES, copy BYTES     on all ranks at once         →  ok µs µs …
#pragma once

#include <iosfwd>

namespace trireme::measure {

/// `threads`: that many ranks in this process; 0: this process is one rank, of a job that the environment describes.
/// `bind`: each rank to a core of its own, where there are enough. Rank 0 reads `commands` and writes `answers`.
/// Returns at the end of the commands.
void run_comm_worker(int threads, bool bind, std::istream& commands, std::ostream& answers);

}  // namespace trireme::measure
