#include "trireme/cli/plan_words.h"

#include <fmt/format.h>

#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/base/units.h"
#include "trireme/plan/search.h"
#include "trireme/simulate/cluster.h"

namespace trireme::cli {
namespace {

Cluster cluster_for(const Config& config) {
  const char* named = std::getenv("TRIREME_CLUSTER");
  return find_clusters(named ? named : config.train.device == "cuda" ? "h100-80gb" : "laptop").front();
}

}  // namespace

std::vector<std::string> plan_words(const Config& config, int num_workers, std::string& told) {
  Plan plan;
  Config planned = config;
  planned.parallel.plan.clear();
  if (config.parallel.plan == "auto") {
    PlanOptions options;
    options.explain = false;
    plan = make_plan(planned, cluster_for(config), num_workers, options);
  } else {
    plan = read_plan(config.parallel.plan);
    check_plan(plan, planned, num_workers);
  }
  apply_plan(plan, planned);  // refuses what no key says
  const PlanKeys& keys = plan.keys;
  told = fmt::format("planned for {}: {} · predicted {} a step, {} a worker", plan.cluster, plan.layout_text(),
                     format_duration(plan.predicted.step_seconds),
                     format_bytes(static_cast<uint64_t>(plan.predicted.memory_bytes_per_gpu)));
  std::vector<std::string> words = {fmt::format("--parallel.dp={}", keys.dp),
                                    fmt::format("--parallel.tp={}", keys.tp),
                                    fmt::format("--parallel.pp={}", keys.pp),
                                    fmt::format("--parallel.zero={}", keys.zero),
                                    fmt::format("--parallel.interleave={}", keys.interleave),
                                    fmt::format("--parallel.sequence={}", keys.sequence),
                                    "--parallel.schedule=" + keys.schedule,
                                    "--parallel.split=" + keys.split,
                                    fmt::format("--train.global_batch={}", keys.global_batch),
                                    fmt::format("--train.micro_batch={}", keys.micro_batch),
                                    "--train.recompute=" + keys.recompute,
                                    "--compression.method=" + keys.compression};
  if (keys.zero > 1) words.push_back("--parallel.zero_accumulation=" + planned.parallel.zero_accumulation);
  if (keys.leaves > 0) words.push_back(fmt::format("--train.leaves={}", keys.leaves));
  return words;
}

}  // namespace trireme::cli
