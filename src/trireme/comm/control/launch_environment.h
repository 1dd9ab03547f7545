// Who am I, and where is rank 0: read from the environment of whichever launcher started this process.
//
//   launcher        rank, size, place on the host                     where rank 0 is
//   trireme launch  TRIREME_RANK, TRIREME_WORLD_SIZE,                 TRIREME_MASTER (address:port), TRIREME_LISTEN_FD
//                   TRIREME_LOCAL_RANK, TRIREME_LOCAL_SIZE
//   torchrun        RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE    MASTER_ADDR, MASTER_PORT
//   srun            SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID, …      the first of SLURM_STEP_NODELIST, a port from the
//                                                                     job's number; MASTER_ADDR and MASTER_PORT
//                                                                     override
//   mpirun          OMPI_COMM_WORLD_RANK, …_SIZE, …_LOCAL_RANK, …     told over MPI; MASTER_ADDR and MASTER_PORT
//   override
//
// For all: TRIREME_TOKEN or TRIREME_TOKEN_FILE (the shared secret), TRIREME_JOB (a name of the job), TRIREME_BIND (the
// numeric address to listen on). A job that is wholly on one host meets on loopback, whatever name the launcher gave.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

/// Alone; `trireme`'s own launch; torchrun (RANK, WORLD_SIZE, …); srun (SLURM_*); mpirun (OMPI_*).
enum class Launcher { kAlone, kTrireme, kTorchrun, kSlurm, kMpi };

struct LaunchEnvironment {
  Launcher launcher = Launcher::kAlone;
  int rank = 0, size = 1, local_rank = 0, local_size = 1;
  std::string master_address = "127.0.0.1";  ///< empty under mpirun: to be told over MPI
  std::vector<uint16_t> master_ports;        ///< tried in order: torchrun's own store may hold the first ones
  int listen_fd = -1;                        ///< rank 0 only: a listening socket inherited from the launcher
  /// What this rank listens on; loopback unless the master is elsewhere. Empty: the master's address on rank 0, on the
  /// others the one by which they reach the master.
  std::string bind_address;
  std::string job;    ///< equal for all ranks of a job, different between jobs
  std::string token;  ///< shared secret; empty: loopback only, agreed on by a file of the owner's
};

/// Throws UsageError: RANK outside the world, half-set variables, no token beyond loopback; each with the cure.
/// The second form reads the given variables instead of the process environment: for tests.
LaunchEnvironment read_launch_environment();
LaunchEnvironment read_launch_environment(const std::vector<std::pair<std::string, std::string>>& variables);

}  // namespace trireme
