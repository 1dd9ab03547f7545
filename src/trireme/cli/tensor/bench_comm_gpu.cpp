// `trireme-tensor bench-comm`: one rank of `trireme bench comm --device cuda`.
#include <fmt/format.h>
#include <torch/torch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/cli/tensor/commands.h"
#include "trireme/comm/world.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme::cli {
namespace {

struct GpuCommFlags {
  std::vector<std::string> operations;
  std::vector<int64_t> sizes;
  bool ordered = true;
};

/// One rank's buffers and calls. Threads: one. What it calls is collective.
class Rank {
 public:
  Rank(Communicator& comm, const torch::Device& device, bool ordered) : comm_(comm), device_(device) {
    options_ = call_options(device);
    options_.ordered = ordered;
  }

  Json measure(const std::string& operation, int64_t bytes) {
    const auto size = static_cast<int64_t>(comm_.size());
    const int64_t count = std::max<int64_t>(1, bytes / 4), block = std::max<int64_t>(1, count / size);
    const bool gathers = operation == "all-gather", scatters = operation == "reduce-scatter";
    const bool in_place = operation == "all-reduce" || operation == "broadcast";
    const torch::Tensor in = floats(in_place ? count : gathers ? block : block * size);
    const torch::Tensor out = floats(in_place ? 1 : scatters ? block : block * size);
    std::function<void()> call;
    if (operation == "all-reduce") {
      call = [&] { comm_.all_reduce(data_of(in), ReduceOp::kSum, options_); };
    } else if (operation == "broadcast") {
      call = [&] { comm_.broadcast(data_of(in), 0, options_); };
    } else if (gathers) {
      call = [&] { comm_.all_gather(data_of(in), data_of(out), options_); };
    } else if (scatters) {
      call = [&] { comm_.reduce_scatter(data_of(in), data_of(out), ReduceOp::kSum, options_); };
    } else {
      call = [&] { comm_.all_to_all(data_of(in), data_of(out), options_); };
    }
    in.zero_();
    const double us = microseconds_of(call);
    check(operation, in, out, call);
    const torch::Tensor from = torch::empty_like(in), to = torch::empty_like(in);
    const double copy_us = microseconds_of([&] { to.copy_(from); });
    return {{"operation", operation}, {"bytes", bytes}, {"us", us}, {"copy_us", copy_us}};
  }

 private:
  torch::Tensor floats(int64_t count) const {
    return host_shared_zeros(&comm_, count, torch::TensorOptions().dtype(torch::kFloat32).device(device_));
  }

  /// Ones in, and what must come out.
  void check(const std::string& operation, const torch::Tensor& in, const torch::Tensor& out,
             const std::function<void()>& call) const {
    in.fill_(operation == "broadcast" && comm_.rank() != 0 ? 0 : 1);
    synchronize(device_);
    comm_.barrier();
    call();
    const bool sums = operation == "all-reduce" || operation == "reduce-scatter";
    const bool in_place = operation == "all-reduce" || operation == "broadcast";
    const double expected = sums ? comm_.size() : 1;
    if (!(in_place ? in : out).eq(expected).all().item<bool>()) {
      throw Error(fmt::format("{} of {} numbers gave something else than {}", operation, in.numel(), expected));
    }
  }

  /// A call after the other, each until its end: the median of five rows of them.
  double microseconds_of(const std::function<void()>& call) const {
    const auto timed = [&](int calls) {
      synchronize(device_);
      comm_.barrier();
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) call();
      synchronize(device_);
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / calls;
    };
    timed(3);
    std::vector<double> slowest = {timed(5)};
    comm_.all_reduce(slowest, ReduceOp::kMax);  // all make as many
    const int calls = static_cast<int>(std::clamp(20000 / slowest[0], 5.0, 200.0));
    std::vector<double> us;
    for (int i = 0; i < 5; ++i) us.push_back(timed(calls));
    std::nth_element(us.begin(), us.begin() + 2, us.end());
    return us[2];
  }

  Communicator& comm_;
  torch::Device device_;
  CallOptions options_;
};

void run(const GpuCommFlags& flags) {
  World world = World::join();
  const torch::Device device = open_device("cuda", world.local_rank());
  attach_device(world.comm(), device);
  Rank rank(world.comm(), device, flags.ordered);
  Json list = Json::array();
  for (const std::string& operation : flags.operations) {
    for (const int64_t bytes : flags.sizes) list.push_back(rank.measure(operation, bytes));
  }
  if (world.rank() == 0) fmt::print("{}\n", Json{{"results", list}}.dump());
  world.leave();
}

}  // namespace

void add_bench_comm_gpu(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<GpuCommFlags>();
  CLI::App* command = app.add_subcommand("bench-comm", "one rank of trireme bench comm --device cuda");
  command->add_option("--operations", flags->operations, "such as all-reduce,broadcast")->delimiter(',');
  command->add_option("--sizes", flags->sizes, "bytes")->delimiter(',');
  command->add_flag("--any-order{false}", flags->ordered, "sums in any order");
  command->callback([flags, &exit_code] {
    run(*flags);
    exit_code = 0;
  });
}

}  // namespace trireme::cli
