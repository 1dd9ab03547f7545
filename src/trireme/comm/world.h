// The ranks of a job. `World::join()` is the first call of every program on the library.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

struct WorldOptions {
  std::chrono::milliseconds join_timeout{60'000};
  std::chrono::milliseconds call_timeout{300'000};
  /// "auto" (shared memory inside a host, TCP between hosts), "tcp" or "mpi". TRIREME_TRANSPORT overrides it.
  std::string transport = "auto";
};

/// Movable; leaves the job when destroyed. Joining twice in one process is allowed: two worlds.
class World {
 public:
  /// Works alone (one rank), under `trireme launch`, torchrun, srun and mpirun. Throws UsageError or CommError.
  static World join(const WorldOptions& options = {});

  World(World&&) noexcept;
  ~World();

  int rank() const;
  int size() const;
  int local_rank() const;
  int local_size() const;
  Communicator& comm();
  /// "alone", "threads", "shared memory", "tcp", "shared memory + tcp", "mpi".
  std::string transport() const;

  /// Shown in error messages and heartbeats: the caller's position, such as the training step.
  void set_step(uint64_t step);
  /// Waits for all ranks, then leaves; throws if an operation had gone wrong. Without it the destructor leaves quietly.
  void leave();

  struct Impl;
  explicit World(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

/// Runs `body` on `num_ranks` threads of this process, each with a world of its own rank. Returns when all have ended;
/// rethrows the first exception by rank.
void run_as_threads(int num_ranks, const std::function<void(World&)>& body, const WorldOptions& options = {});

}  // namespace trireme
