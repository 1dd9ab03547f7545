// What the MPI plug-in offers. The library itself does not need MPI: the plug-in is opened when a job asks for it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "trireme/comm/transport/link.h"

namespace trireme {

/// One a process; MPI stays initialised until the process ends. Thread-safe.
class MpiBackend {
 public:
  virtual ~MpiBackend() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Blocking; all ranks.
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual std::unique_ptr<Link> make_link(int peer_world_rank, uint64_t channel) = 0;
  /// The job has failed: the end of the process must not wait for the others.
  virtual void set_failed() = 0;
  virtual std::string version() const = 0;
};

/// Opens libtrireme_mpi.so beside libtrireme and starts MPI. Throws UsageError with the cure when it cannot.
MpiBackend& open_mpi_backend();
/// Whether the plug-in is there, without opening it.
bool mpi_backend_installed();

}  // namespace trireme
