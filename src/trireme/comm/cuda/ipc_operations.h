// Operations among processes that share one GPU: they open each other's memory, and one of them does the work for all.
//
// [Note: One GPU]
// Kernels of different processes take turns on a GPU, in slices of time. Two processes that each sum a half are several
// times slower than one that sums all. So member 0, the leader, does every operation:
//
//   each member   records its event `ready` behind the producers of its operands
//   all           meet on the host, and tell where their operands are
//   the leader    makes its stream wait for all `ready`, launches one kernel that reads and writes everybody's memory,
//                 and records `done`
//   all           meet again: `done` has been recorded, and streams and hosts of the others may wait for it
//
// Events are shared between processes as the memory is. There are kSlots of each, used in turn: a member uses a slot
// again when the operation that had it is done, and since members meet before anything is recorded, nobody can look at
// an event of a later round by mistake. Operands that other processes cannot open are copied to and from a stage, which
// they can.
#pragma once

#include <array>

#include "trireme/comm/cuda/gpu_backend.h"
#include "trireme/comm/cuda/ipc_memory.h"
#include "trireme/comm/cuda/ipc_messages.h"

namespace trireme {

class IpcOperations : public GpuBackend {
 public:
  static constexpr int kMaxMembers = 64;

  /// Collective: exchanges the events over `comm`, whose members are on one host and one GPU.
  IpcOperations(Communicator& comm, int device, const CallOptions& options = {});
  ~IpcOperations() override;

  std::shared_ptr<GpuTask> begin(void* stream, bool at_once) override;
  void enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& task) override;
  std::shared_ptr<GpuTask> start_message(const GpuMessage& message, void* stream) override;
  std::unique_ptr<GpuOperations> split(Communicator* child, int color, int key) override;
  void abort() noexcept override;

 private:
  static constexpr int kSlots = 4;
  struct Shown;
  struct Stage {
    void* memory = nullptr;
    size_t size = 0;
  };

  bool leads() const { return rank() == 0; }
  bool shows_input(const GpuRequest& request) const;
  bool shows_output(const GpuRequest& request) const;
  void wait_for_slot(const BoardCollectives::Call& call, size_t slot);
  /// The operand itself, or its stage.
  ShownMemory show(ConstData data, Stage& stage, bool& staged);
  void lead(const GpuRequest& request, const std::vector<Shown>& all, const std::vector<size_t>& counts);
  void copy(void* out, const void* in, size_t num_bytes);

  IpcMemory memory_;
  std::shared_ptr<IpcMessages> messages_;
  std::vector<std::array<cudaEvent_t, kSlots>> ready_;  // by member
  std::array<cudaEvent_t, kSlots> done_{};              // the leader's
  std::array<std::shared_ptr<CudaTask>, kSlots> tasks_;
  uint64_t operations_ = 0;
  Stage stage_in_, stage_out_;
  std::vector<void*> outgrown_;  // stages that peers may have open
};

}  // namespace trireme
