// Which GPUs there are and whether this build can use them. Works in every build: without CUDA there are none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::gpu {

struct Device {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;  ///< compute capability
  int num_multiprocessors = 0;
  uint64_t memory_bytes = 0;
  uint64_t free_bytes = 0;
};

/// What the machine has, or why nothing can be used.
struct Survey {
  std::vector<Device> devices;
  std::string problem;  ///< empty where a device can be used; else one sentence
  std::string cure;
  bool usable() const { return problem.empty(); }
};

/// Asks the driver. Never throws for a machine without a GPU, a driver or the right driver.
Survey survey();

/// The device for a worker: its number on the host modulo the devices there. Throws UsageError with the survey's
/// problem where there is none.
Device choose_device(int local_rank);

/// Whether matrix products in 8-bit floating point work on it.
bool has_fp8(const Device& device);

}  // namespace trireme::gpu
