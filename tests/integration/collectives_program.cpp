// A rank that checks every operation, under whichever launcher and transport it is started.
#include <cstdio>
#include <cstring>
#include <exception>

#include "support/collective_checks.h"

int main(int argc, char** argv) {
  try {
    trireme::CheckOptions options;
    if (argc > 1 && std::strcmp(argv[1], "short") == 0) {
      options.counts = {0, 1, 1000, 70001};
      options.all_types = false;
    }
    auto world = trireme::World::join();
    trireme::check_everything(world, options);
    world.leave();
    if (world.rank() == 0) std::printf("all right: %d ranks over %s\n", world.size(), world.transport().c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
