// A communicator's side of operations on GPU memory: the meeting on the host, and the watch over what the GPU does.
#include "trireme/comm/gpu_operations.h"

#include <fmt/format.h>

#include <thread>

#include "trireme/comm/communicator_impl.h"

namespace trireme {
namespace {

constexpr uint64_t kOnGpu = 0x6770755f64617461ull;  // ranks of which one works on host memory disagree
constexpr auto kClosingPatience = std::chrono::seconds(2);

/// What ranks must agree about beside the digest.
uint64_t extra_of(uint64_t extra, const GpuRequest& request) { return extra ^ kOnGpu ^ (request.ordered ? 0 : 1); }

void describe_to(GpuTask& task, const BoardCollectives::Call& call, Clock::time_point start) {
  task.digest = call.digest;
  task.start = start;
  task.deadline = call.waiter.deadline();
}

}  // namespace

GpuOperations& Communicator::Impl::gpu_operations() const {
  if (gpu) return *gpu;
  throw UsageError(fmt::format("group {} has no GPU, but an operand is in GPU memory", group.name),
                   "call attach_gpu (comm/cuda/gpu_communicator.h) on all ranks first, in a build with CUDA");
}

void Communicator::Impl::run_on_gpu(OperationDigest digest, uint64_t extra, const GpuRequest& request,
                                    const CallOptions& options) {
  GpuOperations& operations = gpu_operations();
  if (!queue.idle()) return start_on_gpu(digest, extra, request, options).wait();
  if (is_unusable()) [[unlikely]]
    refuse(digest, Clock::now());
  const std::shared_ptr<GpuTask> task = operations.begin(options.stream, true);
  execute(digest, extra_of(extra, request), options, false, [&](const BoardCollectives::Call& call) {
    describe_to(*task, call, Clock::now());
    operations.enqueue(call, request, *task);
    await_tasks(std::span(&task, 1));
  });
}

Handle Communicator::Impl::start_on_gpu(OperationDigest digest, uint64_t extra, GpuRequest request,
                                        const CallOptions& options) {
  GpuOperations& operations = gpu_operations();
  if (is_unusable()) [[unlikely]]
    refuse(digest, Clock::now());
  const std::shared_ptr<GpuTask> task = operations.begin(options.stream, false);
  const auto operation = [this, digest, extra, options, request = std::move(request), task] {
    execute(digest, extra_of(extra, request), options, true, [&](const BoardCollectives::Call& call) {
      describe_to(*task, call, Clock::now());
      gpu->enqueue(call, request, *task);
    });
  };
  return queue.add(operation, timeout_of(options), {context, digest}, task);
}

std::shared_ptr<GpuTask> Communicator::Impl::start_gpu_message(const GpuMessage& message, const CallOptions& options) {
  GpuOperations& operations = gpu_operations();
  OperationDigest digest;
  digest.kind = message.is_send ? OperationKind::kSend : OperationKind::kRecv;
  digest.type = message.is_send ? message.out.type : message.in.type;
  digest.count = message.is_send ? message.out.count : message.in.count;
  digest.root = static_cast<int32_t>(message.tag);
  if (is_unusable()) [[unlikely]]
    refuse(digest, Clock::now());
  std::shared_ptr<GpuTask> task;
  try {
    task = operations.start_message(message, options.stream);
  } catch (...) {
    fail(digest, Clock::now());
  }
  task->digest = digest;
  task->start = Clock::now();
  task->deadline = task->start + timeout_of(options);
  task->peer = group.world_ranks[static_cast<size_t>(message.peer)];
  return task;
}

void Communicator::Impl::await_tasks(std::span<const std::shared_ptr<GpuTask>> tasks) {
  constexpr auto kSpinning = std::chrono::milliseconds(2);
  const Clock::time_point start = Clock::now();
  for (const std::shared_ptr<GpuTask>& task : tasks) {
    while (!watch(*task)) {
      // Whoever waits for one moves the others, too.
      for (const std::shared_ptr<GpuTask>& other : tasks) {
        if (other != task) watch(*other);
      }
      if (Clock::now() - start > kSpinning) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      } else if (context->cores_are_scarce) {
        yield_core();
      }
    }
  }
}

bool Communicator::Impl::watch(GpuTask& task, bool background) {
  try {
    if (task.is_done()) return true;
    check_task(task);
    return false;
  } catch (...) {
    if (background && task.digest.sequence != 0 && !is_broken.load(std::memory_order_acquire))
      record_failed_message(task.digest, task.start);
    fail(task.digest, task.start);
  }
}

void Communicator::Impl::check_task(GpuTask& task) {
  if (const Failure* failure = context->control->failure()) throw JobFailed{failure};
  const Clock::time_point now = Clock::now();
  // The GPU has the work of all members, so it ends soon: a communicator may be closed right after wait_on().
  if (closing.load(std::memory_order_acquire) && now > closing_since + kClosingPatience) throw WaitCancelled{};
  if (now < task.deadline) return;
  const std::string gave_up =
      fmt::format("{} gave up {} of group {} after {:.1f} s", context->describe(context->rank), describe(task.digest),
                  group.name, std::chrono::duration<double>(now - task.start).count());
  if (!task.inputs_are_ready()) {
    break_with(gave_up + ": its own GPU work in front of it has not ended: a kernel is stuck, or a stream waits for " +
                   "something that does not come",
               context->rank, true);
  }
  // A member whose own work is stuck knows it, and is about to say so.
  for (int i = 0; i < 200 && context->control->failure() == nullptr; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (const Failure* failure = context->control->failure()) throw JobFailed{failure};
  if (task.peer < 0) break_with(gave_up + ": the GPU has the work of all members, but does not end it", -1, true);
  break_with(fmt::format("{}: {} did not take part", gave_up, context->describe(task.peer)), task.peer, true);
}

}  // namespace trireme
