#include "trireme/measure/comm/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/measure/programs.h"
#include "trireme/observe/progress.h"

namespace trireme::measure {
namespace {

void measure_way(const CommOptions& options, int ranks, const GpuWay& way, GpuCommRun& run) {
  std::vector<std::string_view> operations;
  for (const Operation operation : options.operations) operations.push_back(name_of(operation));
  std::vector<std::string> sizes;
  for (const uint64_t bytes : options.sizes) sizes.push_back(std::to_string(bytes));
  std::vector<std::string> words = {"bench-comm", "--operations", join(operations, ","), "--sizes", join(sizes, ",")};
  if (!way.ordered) words.push_back("--any-order");
  try {
    const nlohmann::json said = run_tensor_program(words, ranks, {{"TRIREME_GPU_BACKEND", way.backend}});
    for (const nlohmann::json& each : said.at("results")) {
      run.points.push_back({operation_named(each.at("operation").get<std::string>()), way.name, ranks, each.at("bytes"),
                            each.at("us"), each.at("copy_us")});
    }
  } catch (const Error& error) {
    run.notes.push_back(fmt::format("{} with {} ranks is left out: {}", way.name, ranks, error.what()));
  }
}

}  // namespace

const GpuPoint* GpuCommRun::find(Operation operation, int ranks, const std::string& way, uint64_t bytes) const {
  for (const GpuPoint& p : points) {
    if (p.operation == operation && p.ranks == ranks && p.way == way && p.bytes == bytes) return &p;
  }
  return nullptr;
}

GpuCommRun measure_gpu_comm(const CommOptions& options) {
  check_gpu_code();
  ProgressOptions shown;
  shown.label = "bench comm";
  shown.total = options.ranks.size() * std::size(kGpuWays);
  Progress progress(shown);
  GpuCommRun run;
  uint64_t done = 0;
  for (const int ranks : options.ranks) {
    for (const GpuWay& way : kGpuWays) {
      progress.update(done++, fmt::format("{} with {} ranks", way.name, ranks));
      measure_way(options, ranks, way, run);
    }
  }
  progress.finish();
  if (run.points.empty()) throw Error("no backend could be measured on this GPU", run.notes.at(0));
  return run;
}

std::vector<TransportCost> gpu_links(const CommOptions& options, const GpuCommRun& run) {
  std::vector<TransportCost> links;
  const auto [least, most] = std::minmax_element(options.sizes.begin(), options.sizes.end());
  for (const int ranks : options.ranks) {
    for (const GpuWay& way : kGpuWays) {
      const GpuPoint* small = run.find(Operation::kAllReduce, ranks, way.name, *least);
      const GpuPoint* large = run.find(Operation::kAllReduce, ranks, way.name, *most);
      if (!small || !large || *most == *least || !way.ordered) continue;
      const double wire = bus_factor(Operation::kAllReduce, ranks);  // bytes on the busiest link, by those reduced
      const double us_per_byte = std::max(0.0, large->us - small->us) / (static_cast<double>(*most - *least) * wire);
      const double rounds = 2 * std::ceil(std::log2(ranks));
      links.push_back({way.name,
                       ranks,
                       {small->us / rounds, us_per_byte},
                       0,
                       small->us,
                       large->copy_us / static_cast<double>(*most)});
    }
  }
  return links;
}

}  // namespace trireme::measure
