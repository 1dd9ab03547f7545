// A group of ranks and the operations that they perform together: the heart of the library.
//
// Owner: World owns the communicator of all ranks; split() gives the caller one of its own.
// Threads: one thread at a time calls a communicator; operations started with start_* run on a thread of its own,
// in the order in which they were started. Different communicators are independent.
// Blocking: until done, or until the call's timeout (World's default unless given).
// Failure: CommError, which names the culprit where it is known. After it the communicator is broken: every later
// call throws the same error at once.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/algorithms/algorithm.h"
#include "trireme/comm/buffer.h"
#include "trireme/comm/record/flight_recorder.h"
#include "trireme/comm/transport/traffic.h"
#include "trireme/comm/types.h"

namespace trireme {

/// A communication failed. `culprit` is the rank at fault, or -1; it becomes where().peer.
class CommError : public Error {
 public:
  CommError(const std::string& cause, int culprit, Where where = {}) : Error(cause, {}, blame(where, culprit)) {}
  int culprit() const { return where().peer.value_or(-1); }

 private:
  static Where& blame(Where& where, int culprit) {
    if (culprit >= 0) where.peer = culprit;
    return where;
  }
};

struct CallOptions {
  std::chrono::milliseconds timeout{0};    ///< 0: the default of the world
  Algorithm algorithm = Algorithm::kAuto;  ///< all-reduce only
  /// The result's bits follow [Note: Reduction order]; algorithms that cannot are refused. Off, kAuto may take any.
  bool ordered = true;
  /// Operands in GPU memory only: the CUDA stream on which they were produced; null is the default stream.
  void* stream = nullptr;
};

/// An operation under way. Letting go of it does not cancel it.
class Handle {
 public:
  bool valid() const { return state_ != nullptr; }
  /// True once the operation has ended, well or not.
  bool test();
  /// Returns when the operation is done; throws what it threw, or CommError at the timeout (the operation goes on).
  void wait(std::chrono::milliseconds timeout = std::chrono::milliseconds(0));
  /// Makes a CUDA stream wait for an operation on GPU memory; the calling thread waits only until the operation has
  /// been given to the GPU. For operations on host memory it is wait(). A failure that comes later is thrown by the
  /// next call of the communicator.
  void wait_on(void* stream);

  struct State;
  explicit Handle(std::shared_ptr<State> state = nullptr) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

class Communicator {
 public:
  ~Communicator();
  Communicator(const Communicator&) = delete;

  int rank() const;
  int size() const;
  const std::string& name() const;
  /// The rank in the world of a member.
  int world_rank(int group_rank) const;

  // Operands of every operation may lie in GPU memory (Place::kGpu) once a GPU is attached:
  // comm/cuda/gpu_communicator.h. Such an operation begins after the work that CallOptions::stream holds when it is
  // called, and a blocking call returns when the GPU has done it.

  /// Memory that same-host peers read and write in place: the fastest operand of every operation.
  Buffer allocate(size_t num_bytes);
  template <typename T>
  TypedBuffer<T> allocate(size_t count) {
    return TypedBuffer<T>(allocate(count * sizeof(T)), count);
  }

  /// GPU memory that every rank on the same GPU can reach. Throws UsageError without an attached GPU.
  Buffer allocate_gpu(size_t num_bytes);

  // Point to point. Messages between two ranks with one tag arrive in order. Lengths and types must agree.
  void send(ConstData data, int to, uint32_t tag = 0, const CallOptions& options = {});
  void recv(Data data, int from, uint32_t tag = 0, const CallOptions& options = {});
  void send_recv(ConstData out, int to, Data in, int from, uint32_t tag = 0, const CallOptions& options = {});

  // Collectives: called by all members in the same order.
  void barrier(const CallOptions& options = {});
  void broadcast(Data data, int root, const CallOptions& options = {});
  /// `in` on the root: size() blocks of out.count. Elsewhere it is ignored.
  void scatter(ConstData in, Data out, int root, const CallOptions& options = {});
  void gather(ConstData in, Data out, int root, const CallOptions& options = {});
  void all_gather(ConstData in, Data out, const CallOptions& options = {});
  /// Member r contributes counts[r] elements; `out` holds them one after another. `in` may be its place in `out`.
  void all_gather_v(ConstData in, Data out, std::span<const size_t> counts, const CallOptions& options = {});
  /// `out` is written on the root only.
  void reduce(ConstData in, Data out, ReduceOp op, int root, const CallOptions& options = {});
  /// `in` holds size() blocks of out.count; member r gets the reduced block r.
  void reduce_scatter(ConstData in, Data out, ReduceOp op, const CallOptions& options = {});
  /// `in` holds counts[r] elements for each member r, one after another. `out` may be this member's place in `in`.
  void reduce_scatter_v(ConstData in, Data out, std::span<const size_t> counts, ReduceOp op,
                        const CallOptions& options = {});
  void all_reduce(Data data, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  void all_to_all(ConstData in, Data out, const CallOptions& options = {});
  /// Blocks are packed one after another, in the order of the members.
  void all_to_all_v(ConstData in, std::span<const size_t> send_counts, Data out, std::span<const size_t> recv_counts,
                    const CallOptions& options = {});

  // The same, started and finished later. The operands must stay untouched until then.
  Handle start_send(ConstData data, int to, uint32_t tag = 0, const CallOptions& options = {});
  Handle start_recv(Data data, int from, uint32_t tag = 0, const CallOptions& options = {});
  Handle start_barrier(const CallOptions& options = {});
  Handle start_broadcast(Data data, int root, const CallOptions& options = {});
  Handle start_scatter(ConstData in, Data out, int root, const CallOptions& options = {});
  Handle start_gather(ConstData in, Data out, int root, const CallOptions& options = {});
  Handle start_all_gather(ConstData in, Data out, const CallOptions& options = {});
  Handle start_all_gather_v(ConstData in, Data out, std::span<const size_t> counts, const CallOptions& options = {});
  Handle start_reduce(ConstData in, Data out, ReduceOp op, int root, const CallOptions& options = {});
  Handle start_reduce_scatter(ConstData in, Data out, ReduceOp op, const CallOptions& options = {});
  Handle start_reduce_scatter_v(ConstData in, Data out, std::span<const size_t> counts, ReduceOp op,
                                const CallOptions& options = {});
  Handle start_all_reduce(Data data, ReduceOp op = ReduceOp::kSum, const CallOptions& options = {});
  Handle start_all_to_all(ConstData in, Data out, const CallOptions& options = {});
  Handle start_all_to_all_v(ConstData in, std::span<const size_t> send_counts, Data out,
                            std::span<const size_t> recv_counts, const CallOptions& options = {});

  /// Members that pass the same colour form a group, ordered by (key, rank). Collective. Null for colour -1.
  std::unique_ptr<Communicator> split(int color, int key = 0, const CallOptions& options = {});

  /// Messages, bytes and rounds of this member so far.
  Traffic traffic() const;
  /// The algorithm that kAuto takes for an all-reduce of this many bytes.
  Algorithm choose(size_t num_bytes, bool ordered = true) const;
  const FlightRecorder& recorder() const;

  struct Impl;
  explicit Communicator(std::unique_ptr<Impl> impl);
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
