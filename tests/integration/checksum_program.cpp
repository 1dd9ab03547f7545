// A rank that prints a checksum of the results of known all-reduces: equal bits on every transport.
//
//   checksum_program                  "checksum 0123456789abcdef of 4 ranks over tcp"
//   checksum_program repeat 300       and how much memory the process takes for 300 more of 1 MiB
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "support/checksum.h"
#include "trireme/comm/world.h"

namespace {

long resident_kib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE) / 1024;
}

void all_reduce_often(trireme::Communicator& comm, int times) {
  std::vector<float> data(256 * 1024, 1.f);
  long before = 0;
  for (int i = 0; i < times; ++i) {
    if (i == 20) before = resident_kib();  // by then it has what it needs
    comm.all_reduce(data, trireme::ReduceOp::kAverage);
  }
  if (data.front() != 1.f) throw std::runtime_error("the average of ones is no one");
  std::printf("rank %d grew by %ld KiB\n", comm.rank(), resident_kib() - before);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto world = trireme::World::join();
    const uint64_t checksum = trireme::checksum_of_all_reduces(world.comm());
    if (argc > 2 && std::strcmp(argv[1], "repeat") == 0) all_reduce_often(world.comm(), std::atoi(argv[2]));
    world.leave();
    if (world.rank() == 0) {
      std::printf("checksum %016llx of %d ranks over %s\n", static_cast<unsigned long long>(checksum), world.size(),
                  world.transport().c_str());
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
