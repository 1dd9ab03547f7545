// One rank of `trireme bench comm --server`: a server, or a worker that trains on nothing.
//
//   server NUM_SERVERS BYTES ROUNDS   →  ok, then the numbers of ServerPoint, in their order
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme::cli {

/// What one number of servers and workers costs. Times are of one step: push all gradients, pull all weights.
struct ServerPoint {
  double us = 0;                     ///< median over steps, of the slowest worker
  double ring_us = 0;                ///< of a ring all-reduce of the same bytes between the workers
  double worker_bytes = 0;           ///< sent and received by a worker
  double server_bytes = 0;           ///< in and out of the busiest server
  double ring_bytes = 0;             ///< sent and received by a worker in the ring
  double queue_us = 0;               ///< of a piece that is pushed, between sending and acknowledgement, not served
  double blocked = 0;                ///< part of the time that workers spend waiting
  double busy = 0;                   ///< part of the time that the busiest server works
  double memory_bytes = 0;           ///< a worker that holds the model adds this much at its peak
  double memory_no_model_bytes = 0;  ///< the same, of one that has a layer at a time
};

/// All ranks of `comm` call it: the first `num_servers` serve, the others work. Every rank gets the result.
ServerPoint measure_servers(Communicator& comm, int num_servers, uint64_t bytes, int rounds);

std::string to_line(const ServerPoint& point);
/// Throws Error where it is none.
ServerPoint parse_server_point(const std::string& line);

}  // namespace trireme::cli
