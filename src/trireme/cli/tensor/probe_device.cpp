// `trireme-tensor probe-device`: matrix products, a copy and the start of an operator on a worker's device.
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/json.h"
#include "trireme/cli/tensor/commands.h"
#include "trireme/gpu/device.h"
#include "trireme/tensor/device.h"

namespace trireme::cli {
namespace {

struct ProductSize {
  int64_t m, n, k;
};

// Square ones for the peak; a GPT-2's with many tokens and with few.
constexpr ProductSize kOnGpu[] = {{8192, 8192, 8192}, {4096, 4096, 4096},  {16384, 2304, 768}, {16384, 3072, 768},
                                  {16384, 768, 3072}, {16384, 6400, 1600}, {1024, 3072, 768},  {1024, 1600, 1600}};
constexpr ProductSize kOnCpu[] = {{1024, 1024, 1024}, {512, 512, 512}, {1024, 768, 256},
                                  {512, 256, 1024},   {256, 192, 64},  {64, 64, 64}};

/// Of one worker. Threads: one.
class Prober {
 public:
  explicit Prober(const torch::Device& device) : device_(device) {}

  Json products(torch::ScalarType type, std::string_view name) const {
    Json list = Json::array();
    const auto add = [&](const ProductSize& size) {
      const auto options = torch::TensorOptions().dtype(type).device(device_);
      const torch::Tensor a = torch::randn({size.m, size.k}, options), b = torch::randn({size.k, size.n}, options);
      torch::Tensor out = torch::empty({size.m, size.n}, options);
      const double seconds = seconds_of([&] { torch::mm_out(out, a, b); });
      const double flops =
          2.0 * static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k);
      list.push_back({{"type", name}, {"m", size.m}, {"n", size.n}, {"k", size.k}, {"tflops", flops / seconds / 1e12}});
    };
    if (device_.is_cuda()) {
      for (const ProductSize& size : kOnGpu) add(size);
    } else {
      for (const ProductSize& size : kOnCpu) add(size);
    }
    return list;
  }

  /// Of a copy that no cache holds: read and written.
  double memory_bytes_per_second() const {
    const int64_t bytes = device_.is_cuda() ? int64_t{1} << 30 : int64_t{64} << 20;
    const torch::Tensor from = torch::zeros({bytes / 4}, torch::TensorOptions().device(device_));
    torch::Tensor to = torch::zeros_like(from);
    return 2.0 * static_cast<double>(bytes) / seconds_of([&] { to.copy_(from); });
  }

  /// Of an operator on next to nothing, one after the other.
  double launch_seconds() const {
    torch::Tensor x = torch::zeros({16}, torch::TensorOptions().device(device_));
    constexpr int kCalls = 500;
    return seconds_of([&] {
             for (int i = 0; i < kCalls; ++i) x.add_(1);
           }) /
           kCalls;
  }

 private:
  /// The best of several measurements of at least 20 ms each.
  template <typename Work>
  double seconds_of(Work&& work) const {
    const auto timed = [&](int calls) {
      synchronize(device_);
      const auto start = Clock::now();
      for (int i = 0; i < calls; ++i) work();
      synchronize(device_);
      return std::chrono::duration<double>(Clock::now() - start).count() / calls;
    };
    timed(2);
    const int calls = static_cast<int>(std::clamp(0.02 / timed(1), 1.0, 1000.0));
    double best = timed(calls);
    for (int i = 0; i < 4; ++i) best = std::min(best, timed(calls));
    return best;
  }

  torch::Device device_;
};

Json probe(const std::string& name) {
  const torch::Device device = open_device(name, 0);
  const torch::NoGradGuard no_grad;
  torch::set_num_threads(1);  // as workers have by default
  const Prober prober(device);
  Json json;
  if (device.is_cuda()) {
    const gpu::Survey found = gpu::survey();
    const gpu::Device& card = found.devices.at(0);
    json = {{"name", card.name},
            {"units", card.num_multiprocessors},
            {"memory_bytes", card.memory_bytes},
            {"devices", found.devices.size()}};
  } else {
    const auto cores = static_cast<uint64_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    const uint64_t memory =
        static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    json = {{"name", "core"}, {"units", 1}, {"memory_bytes", memory / cores}, {"devices", cores}};
  }
  json["memory_bytes_per_second"] = prober.memory_bytes_per_second();
  json["launch_seconds"] = prober.launch_seconds();
  json["products"] = prober.products(torch::kFloat32, "float32");
  const auto append = [&](const Json& more) {
    json["products"].insert(json["products"].end(), more.begin(), more.end());
  };
  append(prober.products(torch::kBFloat16, "bfloat16"));
  if (device.is_cuda()) append(prober.products(torch::kFloat16, "float16"));
  return json;
}

}  // namespace

void add_probe_device(CLI::App& app, int& exit_code) {
  const auto name = std::make_shared<std::string>("cpu");
  CLI::App* command = app.add_subcommand("probe-device", "what one worker's device reaches, as JSON");
  command->add_option("--device", *name, "cpu or cuda")->type_name("DEVICE");
  command->callback([name, &exit_code] {
    fmt::print("{}\n", probe(*name).dump(2));
    exit_code = 0;
  });
}

}  // namespace trireme::cli
