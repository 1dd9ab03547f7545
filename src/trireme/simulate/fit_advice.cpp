// What would make a job fit into its devices' memory.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/simulate/simulate.h"

namespace trireme {
namespace {

struct Change {
  std::string words;
  JobLayout layout;
};

std::vector<Change> changes(const Job& job, const Cluster& cluster) {
  std::vector<Change> list;
  const JobLayout& now = job.layout;
  const auto add = [&](std::string words, auto change) {
    JobLayout layout = now;
    change(layout);
    if (!(layout == now)) list.push_back({std::move(words), layout});
  };
  if (now.recompute != RecomputeKind::kFull) {
    add("train.recompute = full", [](JobLayout& l) { l.recompute = RecomputeKind::kFull; });
  }
  if (now.tp > 1 && !now.sequence && job.model.is_language()) {
    add("parallel.sequence = true", [](JobLayout& l) { l.sequence = true; });
  }
  for (int zero = now.zero + 1; zero <= 3 && now.num_replicas() > 1; ++zero) {
    add(fmt::format("parallel.zero = {}", zero), [&](JobLayout& l) { l.zero = zero; });
  }
  if (now.micro_batch > 1) {
    add("train.micro_batch = 1", [](JobLayout& l) { l.micro_batch = 1; });
  }
  for (int64_t factor = 2; factor <= 8 && factor <= now.dp; factor *= 2) {
    if (now.dp % factor != 0) break;
    if (now.tp * factor <= cluster.devices_per_host) {
      add(fmt::format("parallel.tp = {}, dp = {}", now.tp * factor, now.dp / factor), [&](JobLayout& l) {
        l.tp *= factor;
        l.dp /= factor;
      });
    }
    add(fmt::format("parallel.pp = {}, dp = {}", now.pp * factor, now.dp / factor), [&](JobLayout& l) {
      l.pp *= factor;
      l.dp /= factor;
    });
  }
  for (int64_t factor = 2; factor <= 64; factor *= 2) {
    add(fmt::format("{} times as many devices, parallel.pp = {}", factor, now.pp * factor),
        [&](JobLayout& l) { l.pp *= factor; });
    if (now.zero == 3 || now.num_replicas() == 1) {
      add(fmt::format("{} times as many devices, parallel.zero = 3, dp = {}, train.micro_batch = 1", factor,
                      now.dp * factor),
          [&](JobLayout& l) {
            l.zero = 3;
            l.dp *= factor;
            l.micro_batch = 1;
            l.global_batch = std::max(l.global_batch, l.dp);
          });
    }
  }
  return list;
}

}  // namespace

std::vector<std::string> ways_to_fit(const Simulation& simulation) {
  constexpr size_t kMost = 4;
  std::vector<std::string> ways;
  if (simulation.fits()) return ways;
  for (const Change& change : changes(simulation.job, simulation.cluster)) {
    if (ways.size() == kMost) break;
    try {
      const Simulation other = simulate({simulation.job.model, change.layout}, simulation.cluster);
      if (!other.fits()) continue;
      ways.push_back(
          fmt::format("{}: {:.1f} GB, {:.3g} s a step", change.words, other.memory_bytes() / 1e9, other.step_seconds));
    } catch (const UsageError&) {  // cannot be cut that way
    }
  }
  return ways;
}

}  // namespace trireme
