// Every operation, checked against a plain computation: the same on threads, shared memory, TCP and MPI.
#pragma once

#include "trireme/comm/world.h"

namespace trireme {

struct CheckOptions {
  /// Element counts to try.
  std::vector<size_t> counts{0, 1, 7, 64, 1000, 5003, 70001};
  bool all_types = true;
};

// Each throws std::runtime_error with operation, size, rank and element where something is wrong.
void check_point_to_point(Communicator& comm, const CheckOptions& options = {});
void check_collectives(Communicator& comm, const CheckOptions& options = {});
/// Every algorithm, its bits where it promises them.
void check_all_reduce_algorithms(Communicator& comm, const CheckOptions& options = {});
void check_mixed_memory(Communicator& comm);
void check_asynchronous(Communicator& comm);
void check_split(Communicator& comm);
void check_everything(World& world, const CheckOptions& options = {});

}  // namespace trireme
