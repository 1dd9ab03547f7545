// Memory that a worker and a server share: both sides see it, and only whoever knows the secret.
#include "trireme/server/shard/shared_area.h"

#include <gtest/gtest.h>

#include <cstring>

namespace trireme::server {
namespace {

TEST(SharedArea, BothSidesSeeWhatEitherWrites) {
  SharedArea worker = SharedArea::make(2, 5000);
  ASSERT_TRUE(worker.valid());
  SharedArea server = SharedArea::open(worker.ticket());
  ASSERT_TRUE(server.valid());
  const auto slot = worker.take(SharedArea::Side::kWorker, 3);
  ASSERT_TRUE(slot.has_value());
  std::memcpy(worker.slot(SharedArea::Side::kWorker, *slot, 3).data(), "abc", 3);
  EXPECT_EQ(std::memcmp(server.slot(SharedArea::Side::kWorker, *slot, 3).data(), "abc", 3), 0);

  EXPECT_TRUE(worker.take(SharedArea::Side::kWorker, 3).has_value());
  EXPECT_FALSE(worker.take(SharedArea::Side::kWorker, 3).has_value()) << "both slots are taken";
  server.release(SharedArea::Side::kWorker, *slot);
  EXPECT_EQ(worker.take(SharedArea::Side::kWorker, 3), slot);
  EXPECT_FALSE(server.take(SharedArea::Side::kServer, 10'000).has_value()) << "longer than a slot";
}

TEST(SharedArea, ATicketWithAnotherSecretOrSizeOpensNothing) {
  const SharedArea worker = SharedArea::make(2, 4096);
  SharedTicket ticket = worker.ticket();
  ticket.secret ^= 1;
  EXPECT_FALSE(SharedArea::open(ticket).valid());
  ticket = worker.ticket();
  ticket.num_slots = 3;
  EXPECT_FALSE(SharedArea::open(ticket).valid());
}

}  // namespace
}  // namespace trireme::server
