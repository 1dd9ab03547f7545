#include "trireme/comm/cuda/gpu_communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "trireme/base/host.h"
#include "trireme/comm/cuda/ipc_operations.h"
#include "trireme/comm/cuda/nccl_operations.h"
#include "trireme/gpu/device.h"

namespace trireme {
namespace {

enum class Backend : int32_t { kAuto, kNccl, kIpc };

/// What a member says about itself. Fixed layout: it travels between processes.
struct Facts {
  Backend wish = Backend::kAuto;
  int32_t device = -1;
  int32_t pid = 0;
  char uuid[16] = {};
  char bus[32] = {};
  char problem[256] = {};  ///< empty where all is well
};

void set_problem(Facts& facts, const std::string& text) {
  std::strncpy(facts.problem, text.c_str(), sizeof facts.problem - 1);
}

/// Never throws: the others wait for this member's word.
Facts facts_about(const GpuCommOptions& options) {
  Facts facts;
  facts.pid = getpid();
  if (options.backend == "nccl") {
    facts.wish = Backend::kNccl;
  } else if (options.backend == "ipc") {
    facts.wish = Backend::kIpc;
  } else if (options.backend != "auto") {
    set_problem(facts, fmt::format("has no backend \"{}\": there are auto, nccl and ipc", options.backend));
    return facts;
  }
  try {
    const gpu::Survey survey = gpu::survey();
    if (!survey.usable()) {
      set_problem(facts, "has no GPU: " + survey.problem);
      return facts;
    }
    facts.device = options.device;
    if (facts.device < 0) gpu::check(cudaGetDevice(&facts.device), "cudaGetDevice");
    if (facts.device >= static_cast<int>(survey.devices.size())) {
      set_problem(facts, fmt::format("has no GPU {}: it has {}", facts.device, survey.devices.size()));
      return facts;
    }
    cudaDeviceProp properties{};
    gpu::check(cudaGetDeviceProperties(&properties, facts.device), "cudaGetDeviceProperties");
    static_assert(sizeof properties.uuid.bytes == sizeof facts.uuid);
    std::memcpy(facts.uuid, properties.uuid.bytes, sizeof facts.uuid);
    gpu::check(cudaDeviceGetPCIBusId(facts.bus, sizeof facts.bus, facts.device), "cudaDeviceGetPCIBusId");
  } catch (const std::exception& error) {
    set_problem(facts, fmt::format("cannot use its GPU: {}", error.what()));
  }
  return facts;
}

bool same_gpu(const Facts& a, const Facts& b) { return std::memcmp(a.uuid, b.uuid, sizeof a.uuid) == 0; }

/// The same answer, or the same error, on all members.
Backend choose(Communicator& comm, const std::vector<Facts>& all) {
  const auto name = [&](size_t member) { return fmt::format("rank {}", comm.world_rank(static_cast<int>(member))); };
  for (size_t member = 0; member < all.size(); ++member) {
    if (all[member].problem[0] != '\0') {
      throw UsageError(fmt::format("{} {}", name(member), all[member].problem),
                       "run all ranks with a GPU and the same backend, or all without");
    }
    if (all[member].wish != all[0].wish) {
      throw UsageError(fmt::format("{} and {} ask for different GPU backends", name(0), name(member)),
                       "give all ranks the same GpuCommOptions::backend");
    }
    for (size_t other = 0; other < member; ++other) {
      if (all[member].pid != all[other].pid || !same_gpu(all[member], all[other])) continue;
      throw UsageError(fmt::format("{} and {} are threads of one process on one GPU", name(other), name(member)),
                       "start ranks with GPUs as processes: trireme launch");
    }
  }
  const auto elsewhere = std::find_if(all.begin(), all.end(), [&](const Facts& f) { return !same_gpu(f, all[0]); });
  const bool one_gpu = elsewhere == all.end() && comm.size() <= IpcOperations::kMaxMembers;
  const RankContext& context = *comm.impl().context;
  if (all[0].wish == Backend::kIpc && !one_gpu) {
    const size_t member = elsewhere == all.end() ? all.size() - 1 : static_cast<size_t>(elsewhere - all.begin());
    throw UsageError(
        fmt::format("the GPU backend ipc needs one GPU and at most {} ranks, but {} has GPU {} and {} GPU {}",
                    IpcOperations::kMaxMembers, name(0), all[0].bus, name(member), all[member].bus),
        "use backend nccl or auto");
  }
  if (all[0].wish != Backend::kAuto) return all[0].wish;
  bool one_host = true;
  for (int r = 0; r < comm.size(); ++r)
    one_host = one_host && context.same_host(comm.world_rank(0), comm.world_rank(r));
  return one_gpu && one_host ? Backend::kIpc : Backend::kNccl;
}

/// NCCL takes two ranks on one GPU when it believes that they are on different hosts.
void separate_neighbours(const std::vector<Facts>& all) {
  const auto has_neighbour = [&](const Facts& one) {
    return std::count_if(all.begin(), all.end(), [&](const Facts& other) { return same_gpu(one, other); }) > 1;
  };
  if (!std::any_of(all.begin(), all.end(), has_neighbour)) return;
  setenv("NCCL_HOSTID", fmt::format("trireme-{}-{}", host_name(), getpid()).c_str(), 0);
}

struct BroadcastId {
  ncclUniqueId id;
  char problem[256];
};

std::unique_ptr<GpuOperations> make_nccl(Communicator& comm, int device, const std::vector<Facts>& all,
                                         const CallOptions& options) {
  Communicator::Impl& impl = comm.impl();
  separate_neighbours(all);
  const DeviceGuard guard(device);
  BroadcastId sent{};
  if (comm.rank() == 0) {
    try {
      sent.id = NcclLink::make_id();
    } catch (const std::exception& error) {
      std::strncpy(sent.problem, error.what(), sizeof sent.problem - 1);
    }
  }
  comm.broadcast(Data(&sent, sizeof sent, DataType::kUInt8), 0, options);
  if (sent.problem[0] != '\0')
    throw CommError(fmt::format("rank {} could not start NCCL: {}", comm.world_rank(0), sent.problem),
                    comm.world_rank(0));
  const Deadline deadline = Deadline::after(impl.timeout_of(options));
  const auto check = [&] {
    impl.check_usable();
    if (!deadline.expired()) return;
    impl.break_with(
        fmt::format("{} gave up after {:.1f} s: NCCL does not connect the {} ranks of group {}",
                    impl.context->describe(impl.context->rank),
                    std::chrono::duration<double>(impl.timeout_of(options)).count(), comm.size(), comm.name()),
        -1, true);
  };
  return std::make_unique<NcclOperations>(impl, device, NcclLink::make(sent.id, comm.size(), comm.rank(), check));
}

}  // namespace

void attach_gpu(Communicator& comm, const GpuCommOptions& options) {
  Communicator::Impl& impl = comm.impl();
  CallOptions call;
  call.timeout = options.timeout;
  if (impl.gpu) throw UsageError(fmt::format("group {} has a GPU already", comm.name()), "attach it once");
  const Facts mine = facts_about(options);
  std::vector<Facts> all(static_cast<size_t>(comm.size()));
  comm.all_gather(ConstData(&mine, sizeof mine, DataType::kUInt8),
                  Data(all.data(), all.size() * sizeof(Facts), DataType::kUInt8), call);
  const Backend backend = choose(comm, all);
  try {
    if (backend == Backend::kIpc) {
      impl.gpu = std::make_unique<IpcOperations>(comm, mine.device, call);
    } else {
      impl.gpu = make_nccl(comm, mine.device, all, call);
    }
  } catch (const CommError&) {
    throw;
  } catch (const std::exception& error) {
    // The others must not wait for this rank.
    impl.break_with(fmt::format("{} could not attach its GPU to group {}: {}",
                                impl.context->describe(impl.context->rank), comm.name(), error.what()),
                    impl.context->rank, true);
  }
  comm.barrier(call);
}

std::string gpu_backend_of(Communicator& comm) {
  const GpuOperations* gpu = comm.impl().gpu.get();
  if (gpu == nullptr) return "";
  return dynamic_cast<const IpcOperations*>(gpu) != nullptr ? "ipc" : "nccl";
}

}  // namespace trireme
