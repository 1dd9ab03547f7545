// The host's half of GPU operations, on a GPU that is only pretended: meetings, tasks, streams that wait, and failures.
#include "trireme/comm/gpu_operations.h"

#include <gtest/gtest.h>

#include <thread>

#include "trireme/comm/communicator_impl.h"
#include "trireme/comm/world.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

/// Done some time after it was enqueued.
class PretendedTask : public GpuTask {
 public:
  bool is_done() override {
    if (fails) throw Error("the GPU has fallen off the bus");
    return enqueued.load() && Clock::now() >= done_at;
  }
  bool is_enqueued() const override { return enqueued.load(); }
  bool inputs_are_ready() override { return !stuck; }
  void wait_on(void* stream) override { ++*static_cast<std::atomic<int>*>(stream); }

  std::atomic<bool> enqueued{false};
  Clock::time_point done_at{};
  bool stuck = false, fails = false;
};

/// Its memory is the host's; an all-reduce is the host's.
class PretendedGpu : public GpuOperations {
 public:
  explicit PretendedGpu(Communicator::Impl& impl) : impl_(&impl) {}
  std::shared_ptr<GpuTask> begin(void*, bool) override {
    auto task = std::make_shared<PretendedTask>();
    task->stuck = stuck;
    task->fails = fails;
    return task;
  }
  void enqueue(const BoardCollectives::Call& call, const GpuRequest& request, GpuTask& base) override {
    auto& task = static_cast<PretendedTask&>(base);
    impl_->host_shared->all_reduce(call, Data(request.out.bytes, request.out.count, request.out.type), request.op);
    task.done_at = Clock::now() + (never ? std::chrono::hours(1) : std::chrono::milliseconds(time_ms));
    task.enqueued = true;
  }
  std::shared_ptr<GpuTask> start_message(const GpuMessage&, void*) override { throw Error("no messages here"); }
  std::unique_ptr<GpuOperations> split(Communicator* child, int, int) override {
    return child == nullptr ? nullptr : std::make_unique<PretendedGpu>(child->impl());
  }
  Buffer allocate(size_t) override { return {}; }
  void abort() noexcept override { ++aborts; }
  Traffic traffic() const override { return {.bytes_sent = 5}; }

  int time_ms = 30;
  bool stuck = false, never = false, fails = false;
  std::atomic<int> aborts{0};

 private:
  Communicator::Impl* impl_;
};

PretendedGpu& attach(Communicator& comm) {
  auto gpu = std::make_unique<PretendedGpu>(comm.impl());
  PretendedGpu& attached = *gpu;
  comm.impl().gpu = std::move(gpu);
  return attached;
}

Data on_gpu(std::vector<float>& data) { return {data.data(), data.size(), DataType::kFloat, Place::kGpu}; }

TEST(GpuOperations, BlockUntilTheGpuIsDone) {
  run_as_threads(3, [](World& world) {
    PretendedGpu& gpu = attach(world.comm());
    std::vector<float> data(1000, 1);
    const Clock::time_point start = Clock::now();
    world.comm().all_reduce(on_gpu(data));
    EXPECT_GE(Clock::now() - start, 30ms);
    EXPECT_EQ(data[999], 3);
    EXPECT_EQ(gpu.aborts, 0);
    EXPECT_GE(world.comm().traffic().bytes_sent, 5u);
  });
}

TEST(GpuOperations, AreStartedAndStreamsWait) {
  run_as_threads(2, [](World& world) {
    attach(world.comm()).time_ms = 100;
    std::atomic<int> stream{0};
    std::vector<std::vector<float>> data(5, std::vector<float>(100, 1));
    std::vector<Handle> handles;
    const Clock::time_point start = Clock::now();
    for (auto& one : data) handles.push_back(world.comm().start_all_reduce(on_gpu(one)));
    for (Handle& handle : handles) handle.wait_on(&stream);
    EXPECT_LT(Clock::now() - start, 90ms);  // none is done, all have been given to the GPU
    EXPECT_EQ(stream, 5);
    EXPECT_FALSE(handles[0].test());
    for (Handle& handle : handles) handle.wait();
    EXPECT_GE(Clock::now() - start, 100ms);
    for (const auto& one : data) EXPECT_EQ(one[99], 2);
    // A blocking one behind one that was started, and a host operation beside them.
    Handle handle = world.comm().start_all_reduce(on_gpu(data[0]));
    world.comm().all_reduce(data[1]);
    world.comm().all_reduce(on_gpu(data[2]));
    handle.wait();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(data[i][0], 4);
  });
}

TEST(GpuOperations, OnHostMemoryWaitOnIsWait) {
  run_as_threads(2, [](World& world) {
    std::vector<float> data(100, 1);
    world.comm().start_all_reduce(data).wait_on(nullptr);
    EXPECT_EQ(data[99], 2);
  });
}

TEST(GpuOperations, NeedAGpuAndOneKindOfMemory) {
  run_as_threads(2, [](World& world) {
    std::vector<float> a(4, 1), b(8, 1);
    EXPECT_THROW(world.comm().all_reduce(on_gpu(a)), UsageError);
    EXPECT_THROW(world.comm().start_send(on_gpu(a), 0), UsageError);
    EXPECT_THROW(world.comm().allocate_gpu(4), UsageError);
    attach(world.comm());
    EXPECT_THROW(world.comm().all_gather(a, on_gpu(b)), UsageError);
    EXPECT_THROW(world.comm().send_recv(a, 0, on_gpu(a), 0), UsageError);
    world.comm().all_reduce(a);
    EXPECT_EQ(a[3], 2);
  });
}

TEST(GpuOperations, AreInheritedByGroups) {
  run_as_threads(3, [](World& world) {
    attach(world.comm()).time_ms = 1;
    const auto group = world.comm().split(world.rank() == 2 ? -1 : 0);
    if (!group) return;
    std::vector<float> data(10, 1);
    group->all_reduce(on_gpu(data));
    EXPECT_EQ(data[9], 2);
  });
}

TEST(GpuOperations, OfACommunicatorThatIsClosedMayEnd) {
  run_as_threads(2, [](World& world) {
    attach(world.comm());
    const auto group = world.comm().split(0);
    std::vector<float> data(10, 1);
    Handle handle = [&] {
      const auto inner = world.comm().split(0);
      std::atomic<int> stream{0};
      Handle started = inner->start_all_reduce(on_gpu(data));
      started.wait_on(&stream);
      return started;
    }();
    EXPECT_TRUE(handle.test());
    handle.wait();
    world.comm().barrier();  // nothing has been broken
  });
}

/// What each of the ranks was told.
std::vector<CommError> errors_of(int ranks, const std::function<void(World&)>& body,
                                 std::chrono::milliseconds timeout = 400ms) {
  std::vector<CommError> errors(static_cast<size_t>(ranks), CommError("nothing", -2));
  WorldOptions options;
  options.call_timeout = timeout;
  run_as_threads(
      ranks,
      [&](World& world) {
        try {
          body(world);
        } catch (const CommError& error) {
          errors[static_cast<size_t>(world.rank())] = error;
        }
      },
      options);
  return errors;
}

void expect_stuck(bool started) {
  const auto errors = errors_of(3, [&](World& world) {
    PretendedGpu& gpu = attach(world.comm());
    gpu.never = true;
    gpu.stuck = world.rank() == 1;
    std::vector<float> data(10, 1);
    if (started) {
      world.comm().start_all_reduce(on_gpu(data)).wait();
    } else {
      world.comm().all_reduce(on_gpu(data));
    }
  });
  for (const CommError& error : errors) {
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_NE(std::string(error.what()).find(" gave up all-reduce #1"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("its own GPU work"), std::string::npos) << error.what();
  }
}

TEST(GpuOperations, NameTheRankWhoseOwnWorkIsStuck) { expect_stuck(false); }
TEST(GpuOperations, NameTheRankWhoseOwnWorkIsStuckInTheBackground) { expect_stuck(true); }

TEST(GpuOperations, TellAllOfAnErrorOfTheGpu) {
  const auto errors = errors_of(2, [](World& world) {
    PretendedGpu& gpu = attach(world.comm());
    gpu.fails = world.rank() == 0;
    gpu.time_ms = 100;
    std::vector<float> data(10, 1);
    Handle handle = world.comm().start_all_reduce(on_gpu(data));
    if (world.rank() == 0) {
      EXPECT_THROW(handle.wait(), Error);
      EXPECT_GE(gpu.aborts, 1);
    }
    handle = Handle();
    std::this_thread::sleep_for(50ms);
    world.comm().all_reduce(data);
  });
  for (const CommError& error : errors) {
    EXPECT_EQ(error.culprit(), 0) << error.what();
    EXPECT_NE(std::string(error.what()).find("fallen off the bus"), std::string::npos) << error.what();
  }
}

TEST(GpuOperations, OfRanksThatDisagreeAboutTheMemoryAreNoticed) {
  const auto errors = errors_of(
      3,
      [](World& world) {
        attach(world.comm());
        std::vector<float> data(10, 1);
        if (world.rank() == 2) {
          CallOptions ordered;
          ordered.algorithm = Algorithm::kOrdered;
          world.comm().all_reduce(data, ReduceOp::kSum, ordered);
        } else {
          world.comm().all_reduce(on_gpu(data));
        }
      },
      5s);
  for (const CommError& error : errors) {
    EXPECT_EQ(error.culprit(), 2) << error.what();
    EXPECT_NE(std::string(error.what()).find("disagree"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme
