// Jobs and published collectives for the tests of the simulator.
#pragma once

#include <array>
#include <random>

#include "trireme/simulate/collective_cost.h"
#include "trireme/simulate/simulate.h"

namespace trireme {

/// Every exchange between replicas.
inline constexpr std::array kExchanges = {GradientExchange::kSum,          GradientExchange::kServers,
                                          GradientExchange::kAsyncServers, GradientExchange::kAdasum,
                                          GradientExchange::kMomenta,      GradientExchange::kLocal};

inline Job gpt_job(int64_t layers = 8, int64_t hidden = 1024, int64_t heads = 16, int64_t seq = 512) {
  Job job;
  job.model.layers = layers;
  job.model.hidden = hidden;
  job.model.heads = job.model.kv_heads = heads;
  job.model.ffn = 4 * hidden;
  job.model.seq = seq;
  job.model.vocab = 32000;
  job.layout.compute = NumberType::kFloat16;
  job.layout.micro_batch = 2;
  job.layout.global_batch = 16;
  return job;
}

struct PublishedAllReduce {
  const char *name, *cluster;
  int ranks;
  double mib, microseconds;
};

/// NCCL's own measurements.
inline std::vector<PublishedAllReduce> published_all_reduces() {
  std::vector<PublishedAllReduce> rows;
  const auto add = [&](const char* name, const char* cluster, int ranks,
                       std::initializer_list<std::pair<double, double>> times) {
    for (const auto& [mib, microseconds] : times) rows.push_back({name, cluster, ranks, mib, microseconds});
  };
  add("8 x H100, one host", "h100-80gb", 8,
      {{128, 613}, {256, 1139}, {512, 2176}, {1024, 4039}, {2048, 8020}, {4096, 15870}});
  add("2 x 8 H200", "h200-141gb", 16, {{1.0 / 1024, 45.1}, {1, 76.9}, {1024, 4389}});
  return rows;
}

inline double predict(const PublishedAllReduce& row) {
  const Cluster cluster = find_cluster(row.cluster);
  const double bytes = row.mib * 1024 * 1024;
  return 1e6 * collective_seconds(CollectiveKind::kAllReduce, bytes, group_on(cluster, row.ranks, 1), cluster);
}

/// A random job whose layout can split the model.
inline Job random_job(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) { return *(values.begin() + random() % values.size()); };
  Job job = gpt_job(pick({4, 8, 12}), pick({512, 1024, 3072}), 8, pick({256, 1024}));
  Layout& l = job.layout;
  if (random() % 3 == 0) {
    job.model.kind = ModelKind::kLlama;
    job.model.kv_heads = 4;
    job.model.tied = false;
  }
  l.tp = pick({1, 2, 4, 8});
  l.pp = pick({1, 2, 4});
  l.dp = pick({1, 2, 4, 16});
  l.cp = pick({1, 1, 2});
  l.zero = static_cast<int>(pick({0, 1, 2, 3}));
  l.sequence = l.tp > 1 && random() % 2 == 0;
  l.interleave = l.pp > 1 && random() % 2 == 0 ? 2 : 1;
  if (job.model.layers % (l.pp * l.interleave) != 0) l.interleave = 1;
  l.recompute = static_cast<RecomputeKind>(random() % 3);
  l.micro_batch = pick({1, 2});
  l.global_batch = l.micro_batch * l.dp * pick({1, 4, 8});
  job.overlap = random() % 2 == 0;
  return job;
}

}  // namespace trireme
