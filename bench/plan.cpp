// How long planning takes: `bench_plan` prints one line a case.
#include <fmt/format.h>

#include <chrono>

#include "trireme/config/resolve.h"
#include "trireme/plan/search.h"

using namespace trireme;

namespace {

struct Case {
  const char *name, *cluster;
  int64_t devices;
  std::vector<std::string> words;
};

std::vector<std::string> gpt(int layers, int hidden, int heads, int seq, int batch) {
  return {"--model.kind=gpt2",
          fmt::format("--model.layers={}", layers),
          fmt::format("--model.hidden={}", hidden),
          fmt::format("--model.heads={}", heads),
          fmt::format("--model.seq={}", seq),
          "--model.vocab=51200",
          fmt::format("--train.global_batch={}", batch),
          "--precision.compute=float16"};
}

}  // namespace

int main() {
  const Case cases[] = {{"GPT 2.6B on 8 V100 (at most 5 s)", "v100-16gb", 8, gpt(32, 2560, 32, 1024, 1024)},
                        {"GPT 39B on 64 V100", "v100-16gb", 64, gpt(48, 8192, 64, 1024, 1024)},
                        {"GPT-3 175B on 1,024 A100 (at most 60 s)", "a100-80gb", 1024, gpt(96, 12288, 96, 2048, 1536)}};
  for (const Case& each : cases) {
    const Config config = resolve({.file = "", .arguments = each.words, .default_preset = ""});
    const Cluster cluster = find_cluster(each.cluster);
    const auto start = std::chrono::steady_clock::now();
    const PlanReport report = explain_plan(config, cluster, each.devices);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    fmt::print("{:<42} {:6.2f} s  {} layouts, {} simulated: {}\n", each.name, seconds, report.num_candidates,
               report.num_simulated, report.plan.layout_text());
  }
}
