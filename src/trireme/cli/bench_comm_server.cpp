#include "trireme/cli/bench_comm_server.h"

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/base/units.h"
#include "trireme/cli/bench_comm_peers.h"
#include "trireme/cli/bench_comm_report.h"
#include "trireme/cli/bench_comm_server_worker.h"
#include "trireme/observe/table.h"

namespace trireme::cli {
namespace {

constexpr std::chrono::seconds kServerStartTime{60};
constexpr int kServers[] = {1, 2, 4};

struct Result {
  uint64_t bytes = 0;
  int servers = 0, workers = 0;
  ServerPoint point;
};

std::string bytes_text(double bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

std::string table_of(const std::vector<Result>& results, uint64_t bytes, bool colour) {
  Table table({{"workers", Align::kRight},
               {"servers", Align::kRight},
               {"step µs", Align::kRight},
               {"ring µs", Align::kRight},
               {"step/ring", Align::kRight},
               {"busiest server", Align::kRight},
               {"a worker", Align::kRight},
               {"in the ring", Align::kRight},
               {"queueing µs", Align::kRight},
               {"blocked", Align::kRight},
               {"memory", Align::kRight},
               {"without model", Align::kRight}});
  for (const Result& result : results) {
    if (result.bytes != bytes) continue;
    const ServerPoint& p = result.point;
    const bool alone = result.workers == 1;  // a ring of one has nothing to do
    table.add_row({std::to_string(result.workers), std::to_string(result.servers), format_us(p.us),
                   alone ? "–" : format_us(p.ring_us), alone ? "–" : fmt::format("{:.1f}x", p.us / p.ring_us),
                   bytes_text(p.server_bytes), bytes_text(p.worker_bytes), alone ? "–" : bytes_text(p.ring_bytes),
                   format_us(p.queue_us), fmt::format("{:.0f} %", 100 * p.blocked), bytes_text(p.memory_bytes),
                   bytes_text(p.memory_no_model_bytes)});
  }
  return fmt::format("parameter servers, {} of weights: a step pushes all gradients and pulls all weights\n{}\n",
                     format_bytes(bytes), table.to_text({.bold_header = colour}));
}

Json json_of(const Result& result) {
  const ServerPoint& p = result.point;
  return {{"bytes", result.bytes},
          {"workers", result.workers},
          {"servers", result.servers},
          {"us", p.us},
          {"ring_us", p.ring_us},
          {"server_bytes", p.server_bytes},
          {"worker_bytes", p.worker_bytes},
          {"ring_bytes", p.ring_bytes},
          {"queue_us", p.queue_us},
          {"blocked", p.blocked},
          {"server_busy", p.busy},
          {"worker_memory_bytes", p.memory_bytes},
          {"worker_memory_without_model_bytes", p.memory_no_model_bytes}};
}

}  // namespace

void run_bench_comm_server(const BenchCommOptions& options, Guardian& guardian, bool colour) {
  std::vector<Result> results;
  for (const int workers : options.ranks) {
    for (const int servers : kServers) {
      for (const uint64_t bytes : options.sizes) {
        if (bytes < static_cast<uint64_t>(servers) << 20) continue;  // a server would have no layer
        // New processes for each point: the memory of a worker is part of it.
        const auto crew = start_ours(options.transport, workers + servers, options.bind, guardian);
        crew->wait_until_ready(kServerStartTime);
        const int rounds = options.seconds_per_point ? std::max(3, static_cast<int>(*options.seconds_per_point * 20))
                                                     : (bytes > (uint64_t{64} << 20) ? 10 : 20);
        const std::string line = crew->ask(fmt::format("server {} {} {}", servers, bytes, rounds));
        results.push_back({bytes, servers, workers, parse_server_point(line)});
      }
    }
  }
  if (options.json) {
    Json json;
    json["results"] = Json::array();
    for (const Result& result : results) json["results"].push_back(json_of(result));
    fmt::print("{}\n", json.dump(2));
    return;
  }
  for (const uint64_t bytes : options.sizes) fmt::print("{}", table_of(results, bytes, colour));
  fmt::print(
      "Bytes are of one step. A server moves 2 · workers / servers times the weights, a rank of a ring about 4 times "
      "whatever\ntheir number (sent and received). Queueing: of a pushed piece, from sending to its acknowledgement, "
      "without the\nserver's own work on it. Memory: what a worker adds at its peak, with the whole model and with one "
      "layer at a time.\n");
}

}  // namespace trireme::cli
