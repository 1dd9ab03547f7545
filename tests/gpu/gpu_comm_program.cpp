// A rank that works on GPU memory: gpu_comm_program [KEY=VALUE]…
//
//   backend=auto|nccl|ipc   short=1 fewer cases   call_ms=N patience for a call   attach_anyway=1 with a GPU or
//   without mode=check     every operation against the host's result; one line each, "all right" at the end mode=bench
//   microseconds of an all-reduce for 4 KiB to 64 MiB mode=loop      all-reduces until something happens. stuck=RANK:
//   that one puts a kernel of 20 s in front of one;
//                  absent=RANK: that one stays away; mismatch=count|type|reduction|place|order: rank 1 differs
//
// Ends like loop_program: "caught NS CULPRIT MESSAGE" and exit code 3 for a CommError, "error MESSAGE" and 1 for
// others; then "left NS" once the world is closed.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "gpu/gpu_comm_checks.h"
#include "gpu/gpu_compress_checks.h"
#include "support/process_group.h"
#include "trireme/base/units.h"
#include "trireme/comm/cuda/gpu_communicator.h"
#include "trireme/comm/world.h"
#include "trireme/gpu/device.h"

namespace trireme {
namespace {

class Words {
 public:
  Words(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      values_[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
  }
  std::string get(const std::string& key, const std::string& otherwise = "") const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  int number(const std::string& key, int otherwise) const {
    return std::atoi(get(key, std::to_string(otherwise)).c_str());
  }

 private:
  std::map<std::string, std::string> values_;
};

void say(const std::string& text) {
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

void check_everything(World& world, const Words& words) {
  Communicator& comm = world.comm();
  GpuArena arena(comm, size_t{8} << 20);
  GpuCheckOptions options;
  if (words.number("short", 0) != 0) {
    options.counts = {1, 5003, 70001};
    options.all_types = false;
  }
  const auto step = [&](const char* name, auto check) {
    const Clock::time_point start = Clock::now();
    const int cases = check();
    comm.barrier();
    if (world.rank() == 0)
      say(fmt::format("{}: {} cases right, {:.2f} s", name, cases,
                      std::chrono::duration<double>(Clock::now() - start).count()));
  };
  step("reductions", [&] { return check_gpu_reductions(comm, arena, options); });
  step("copies", [&] { return check_gpu_copies(comm, arena, options); });
  step("messages", [&] { return check_gpu_messages(comm, arena); });
  step("any order", [&] { return check_gpu_unordered(comm, arena); });
  step("odd memory", [&] { return check_gpu_odd_memory(comm, arena); });
  step("streams", [&] { return check_gpu_streams(comm, arena); });
  step("groups", [&] { return check_gpu_groups(comm, arena); });
  step("compressed sums",
       [&] { return check_gpu_compression(comm, gpu_backend_of(comm) == "ipc" && comm.size() == 2); });
  step("wrong use", [&] { return check_gpu_usage_errors(comm, arena); });
  if (comm.traffic().bytes_sent == 0) throw Error("traffic() counts no bytes of GPU operations");
}

void bench(World& world) {
  Communicator& comm = world.comm();
  const Buffer buffer = comm.allocate_gpu(size_t{64} << 20);
  const Host values = random_bytes(buffer.num_bytes() / 4, DataType::kFloat, static_cast<uint64_t>(world.rank()));
  gpu::check(cudaMemcpy(buffer.data(), values.data(), values.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  cudaStream_t stream = nullptr;
  gpu::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  if (world.rank() == 0) say("bytes        blocking us   in a row us   any order us");
  for (size_t bytes = 4096; bytes <= size_t{64} << 20; bytes *= 4) {
    const Data data(buffer.data(), bytes / 4, DataType::kFloat, Place::kGpu);
    CallOptions call;
    call.stream = stream;
    const auto us_since = [](Clock::time_point start) {
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    };
    const auto blocking = [&](bool ordered) {
      call.ordered = ordered;
      std::vector<double> times;
      for (int i = 0; i < 60; ++i) {
        comm.barrier();
        const Clock::time_point start = Clock::now();
        comm.all_reduce(data, ReduceOp::kAverage, call);
        if (i >= 10) times.push_back(us_since(start));
      }
      std::nth_element(times.begin(), times.begin() + 25, times.end());
      return times[25];
    };
    const double ordered = blocking(true), any = blocking(false);
    call.ordered = true;
    constexpr int kInARow = 20;
    std::vector<Handle> handles;
    comm.barrier();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kInARow; ++i) handles.push_back(comm.start_all_reduce(data, ReduceOp::kAverage, call));
    for (Handle& handle : handles) handle.wait();
    const double row = us_since(start) / kInARow;
    if (world.rank() == 0)
      say(fmt::format("{:<12} {:11.1f} {:13.1f} {:14.1f}", format_bytes(bytes), ordered, row, any));
  }
  cudaStreamDestroy(stream);
}

void loop(World& world, const Words& words) {
  Communicator& comm = world.comm();
  constexpr size_t kCount = size_t{4} << 20;
  const Buffer buffer = comm.allocate_gpu(kCount * sizeof(float));
  std::vector<float> host(100, 1);
  cudaStream_t stream = nullptr;
  gpu::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  CallOptions call;
  call.stream = stream;
  const std::string mismatch = words.get("mismatch");
  for (int step = 1;; ++step) {
    Data data(buffer.data(), kCount, DataType::kFloat, Place::kGpu);
    ReduceOp op = ReduceOp::kAverage;
    if (step == 6) {
      if (words.number("absent", -1) == world.rank()) std::this_thread::sleep_for(std::chrono::seconds(60));
      if (words.number("stuck", -1) == world.rank()) gpu::enqueue_spin(stream, std::chrono::seconds(20));
      if (world.rank() == 1) {
        if (mismatch == "count") data.count -= 1;
        if (mismatch == "type") data.type = DataType::kInt32;
        if (mismatch == "reduction") op = ReduceOp::kMax;
        if (mismatch == "place") data = Data(host.data(), host.size(), DataType::kFloat);
        if (mismatch == "order") call.ordered = false;
      }
    }
    if (step % 2 == 0) {
      comm.all_reduce(data, op, call);
    } else {  // in the background, and the stream is told first
      Handle handle = comm.start_all_reduce(data, op, call);
      handle.wait_on(stream);
      handle.wait();
    }
    if (step == 5) say("working");
  }
}

int run(const Words& words) {
  WorldOptions options;
  options.call_timeout = std::chrono::milliseconds(words.number("call_ms", 60'000));
  int code = 0;
  {
    World world = World::join(options);
    say(fmt::format("joined {} of {} over {} with pid {}.", world.rank(), world.size(), world.transport(), getpid()));
    try {
      GpuCommOptions gpu_options;
      gpu_options.backend = words.get("backend", "auto");
      if (words.number("attach_anyway", 0) == 0) gpu_options.device = gpu::choose_device(world.local_rank()).index;
      gpu_options.timeout = std::chrono::seconds(60);
      attach_gpu(world.comm(), gpu_options);
      const std::string backend = gpu_backend_of(world.comm());
      if (world.rank() == 0) say(fmt::format("{} ranks by {}", world.size(), backend));
      const std::string mode = words.get("mode", "check");
      if (mode == "check") check_everything(world, words);
      if (mode == "bench") bench(world);
      if (mode == "loop") loop(world, words);
      world.leave();
      if (world.rank() == 0) say(fmt::format("all right: {} ranks by {}", world.size(), backend));
    } catch (const CommError& error) {
      say(fmt::format("caught {} {} {}", Clock::now().time_since_epoch().count(), error.culprit(), error.what()));
      code = 3;
    } catch (const std::exception& error) {
      say(fmt::format("error rank {}: {}", world.rank(), error.what()));
      code = 1;
    }
  }
  say(fmt::format("left {}", Clock::now().time_since_epoch().count()));
  return code;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::die_with_parent();
  try {
    const int code = trireme::run(trireme::Words(argc, argv));
    std::fflush(nullptr);
    if (code == 0) return 0;  // MPI has an end of its own
    // CUDA's own clean-up would wait for kernels that are stuck on purpose.
    _exit(code);
  } catch (const std::exception& error) {
    fmt::print("error {}\n", error.what());
    std::fflush(stdout);
    return 1;
  }
}
