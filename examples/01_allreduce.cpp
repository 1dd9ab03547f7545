// The first program on the library: every rank contributes a vector, and all get the sum.
//
// It teaches joining a job, memory from a communicator, and a collective.
//
//   ./example_01_allreduce                                             alone: one rank, the sum is its own vector
//   trireme launch --nproc-per-node 4 -- ./example_01_allreduce        four ranks; torchrun, srun, mpirun do as well
//
// Rank 0 of four prints:
//
//   4 ranks, shared memory: 10 10 10 10 10 10 10 10
#include <algorithm>
#include <iostream>

#include "trireme/trireme.h"

int main() {
  try {
    auto world = trireme::World::join();
    trireme::Communicator& comm = world.comm();

    // Any vector would do; on one host, memory from the communicator is summed in place, without a copy.
    auto values = comm.allocate<float>(8);
    std::fill(values.begin(), values.end(), static_cast<float>(world.rank() + 1));
    comm.all_reduce(values);

    // Ranks 1 to n have contributed 1 + 2 + … + n.
    const float expected = static_cast<float>(world.size() * (world.size() + 1)) / 2;
    if (std::any_of(values.begin(), values.end(), [&](float value) { return value != expected; })) {
      std::cerr << "error: the sum is wrong on rank " << world.rank() << '\n';
      return 1;
    }
    if (world.rank() == 0) {
      std::cout << world.size() << (world.size() == 1 ? " rank, " : " ranks, ") << world.transport() << ':';
      for (const float value : values) std::cout << ' ' << value;
      std::cout << '\n';
    }
    world.leave();
  } catch (const trireme::Error& error) {  // says which rank is at fault, and what to do
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
