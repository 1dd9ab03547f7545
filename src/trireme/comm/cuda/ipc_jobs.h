// What the leader of a GPU does for all members of an operation, as a list of copies and reductions.
#pragma once

#include <vector>

#include "trireme/comm/cuda/ordered_sum.h"
#include "trireme/comm/gpu_operations.h"

namespace trireme {

/// Where everybody's operands are, by member; null where an operation has none.
struct IpcPlaces {
  std::vector<std::byte*> in, out;
};

/// Jobs and the pointers that they look at. Movable, not copyable.
class IpcJobs {
 public:
  explicit IpcJobs(size_t num_pointers) { pointers_.reserve(num_pointers); }
  IpcJobs(IpcJobs&&) = default;
  IpcJobs(const IpcJobs&) = delete;

  template <typename Source, typename Destination>
  void add(size_t sources, Source source, size_t destinations, Destination destination, size_t count);
  std::span<const gpu::CombineJob> list() const { return jobs_; }

 private:
  std::vector<void*> pointers_;  // never grows beyond what was reserved: jobs point into it
  std::vector<gpu::CombineJob> jobs_;
};

/// `request` is the leader's own: what differs between members is in `places` and, for all-to-all-v, in `counts`, the
/// elements that member i sends to member j at i·p + j.
IpcJobs make_ipc_jobs(const GpuRequest& request, const IpcPlaces& places, const std::vector<size_t>& counts);

}  // namespace trireme
