// Operations on GPU memory, as a communicator sees them: comm/cuda implements this, and nothing here needs CUDA.
//
// [Note: GPU operations]
// An operation on GPU memory has two halves. On the host the ranks meet, as for any other operation: sequence numbers,
// fingerprints, deadlines and the flight recorder work as on the host. Then the work is given to the GPU, and a task
// stands for it until the GPU is done. A blocking call does both. An operation that was started does the first half on
// the thread of operations, so that it runs ahead of the GPU, and a second thread watches all tasks: for their end,
// their deadline and failures of the job. When something is wrong it aborts what the GPU is doing and breaks the
// communicator.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/buffer.h"
#include "trireme/comm/host/board_collectives.h"
#include "trireme/comm/transport/traffic.h"

namespace trireme {

class Communicator;

/// What an operation is to do. Operands are checked, and lie in GPU memory.
struct GpuRequest {
  OperationKind kind = OperationKind::kNone;
  ConstData in;
  Data out;
  ReduceOp op = ReduceOp::kSum;
  int root = -1;
  bool ordered = true;
  std::vector<size_t> send_counts,
      recv_counts;  ///< all-to-all-v; a reduce-scatter-v has the first, an all-gather-v the second
};

/// The type of the elements; the input of a scatter counts on the root only.
inline DataType type_of(const GpuRequest& request) {
  return request.kind == OperationKind::kScatter ? request.out.type : request.in.type;
}

/// One message between two members.
struct GpuMessage {
  bool is_send = false;
  ConstData out;
  Data in;
  int peer = 0;
  uint32_t tag = 0;
};

/// An operation that the GPU does, or will do. Thread-safe; no call blocks.
class GpuTask {
 public:
  virtual ~GpuTask() = default;
  /// Throws what the GPU or the backend found.
  virtual bool is_done() = 0;
  /// The GPU has it: wait_on() may be called.
  virtual bool is_enqueued() const = 0;
  /// The work that was in front of it on the caller's stream has ended.
  virtual bool inputs_are_ready() = 0;
  virtual void wait_on(void* stream) = 0;

  // For deadlines and messages; written before anybody watches.
  OperationDigest digest;
  Clock::time_point start{}, deadline{};
  int peer = -1;  ///< world rank; -1: all
};

/// One group's GPU operations. Owned by its communicator.
class GpuOperations {
 public:
  virtual ~GpuOperations() = default;

  /// On the caller's thread: a task behind the work that `stream` holds now. `at_once`: enqueue() follows directly.
  virtual std::shared_ptr<GpuTask> begin(void* stream, bool at_once) = 0;
  /// Meets the other members, then gives the work to the GPU. One thread at a time, in the order of the operations.
  /// Blocks until the members have come; throws what a waiter throws, Error, or OperationMismatch.
  virtual void enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& task) = 0;
  /// Never blocks. The task moves on when it is asked whether it is done.
  virtual std::shared_ptr<GpuTask> start_message(const GpuMessage& message, void* stream) = 0;

  /// The operations of a group of members; collective among the members of this one, called right after
  /// Communicator::split has made the group. `child` is null for a member that is in none.
  virtual std::unique_ptr<GpuOperations> split(Communicator* child, int color, int key) = 0;
  virtual Buffer allocate(size_t num_bytes) = 0;
  /// Ends what the GPU does for this group, well or not, and frees nothing that it might still touch. May be called
  /// more than once and from any thread; returns within seconds.
  virtual void abort() noexcept = 0;
  virtual Traffic traffic() const = 0;
};

}  // namespace trireme
