// What a step moves: a worker sends and receives the model once, whatever the servers; a server's part of all workers'
// models grows with the workers.
#include <gtest/gtest.h>

#include <algorithm>

#include "trireme/server/server_test_util.h"

namespace trireme::server {
namespace {

using namespace testing;

TEST(ServerTraffic, IsAModelEachWayForAWorkerAndGrowsWithThemForAServer) {
  constexpr uint64_t kPieces = 8, kPieceElements = 4096, kSteps = 3, kModelBytes = 4 * kPieces * kPieceElements;
  for (const int servers : {1, 2, 4}) {
    for (const int workers : {1, 2, 3}) {
      Group group;
      group.settings.num_workers = workers;
      group.settings.piece_elements = kPieceElements;
      group.keys = {{"w", kPieces * kPieceElements, 0, true}};
      group.start(servers);
      group.run([&](Worker& worker, int w) {
        std::vector<float> weights(group.keys[0].count), gradient(weights.size(), 1.f);
        if (w == 0) worker.init("w", weights).wait();
        worker.pull("w", weights, {.clock = 0}).wait();
        const WorkerStats before = worker.stats();
        for (uint64_t clock = 0; clock < kSteps; ++clock) {
          worker.push("w", gradient, {.clock = clock}).wait();
          worker.pull("w", weights, {.clock = clock + 1}).wait();
        }
        EXPECT_EQ(worker.stats().bytes_sent - before.bytes_sent, kSteps * kModelBytes);
        EXPECT_EQ(worker.stats().bytes_received - before.bytes_received, kSteps * kModelBytes);
      });
      // Pieces that pass through shared memory are on no socket: those that were added and answered are counted.
      uint64_t busiest = 0;
      for (const auto& server : group.servers) {
        server->stop();  // what it has answered last is then counted
        busiest = std::max(busiest, server->stats().shards.num_pushes);
      }
      EXPECT_EQ(busiest, kSteps * static_cast<uint64_t>(workers) * kPieces / static_cast<uint64_t>(servers))
          << servers << " servers, " << workers << " workers";
    }
  }
}

}  // namespace
}  // namespace trireme::server
