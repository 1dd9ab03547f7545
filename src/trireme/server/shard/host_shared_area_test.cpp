// Memory that a worker and a server share: both sides see it, and only whoever knows the secret.
#include "trireme/server/shard/host_shared_area.h"

#include <gtest/gtest.h>

#include <cstring>

namespace trireme::server {
namespace {

TEST(HostSharedArea, BothSidesSeeWhatEitherWrites) {
  HostSharedArea worker = HostSharedArea::make(2, 5000);
  ASSERT_TRUE(worker.valid());
  HostSharedArea server = HostSharedArea::open(worker.ticket());
  ASSERT_TRUE(server.valid());
  const auto slot = worker.take(HostSharedArea::Side::kWorker, 3);
  ASSERT_TRUE(slot.has_value());
  std::memcpy(worker.slot(HostSharedArea::Side::kWorker, *slot, 3).data(), "abc", 3);
  EXPECT_EQ(std::memcmp(server.slot(HostSharedArea::Side::kWorker, *slot, 3).data(), "abc", 3), 0);

  EXPECT_TRUE(worker.take(HostSharedArea::Side::kWorker, 3).has_value());
  EXPECT_FALSE(worker.take(HostSharedArea::Side::kWorker, 3).has_value()) << "both slots are taken";
  server.release(HostSharedArea::Side::kWorker, *slot);
  EXPECT_EQ(worker.take(HostSharedArea::Side::kWorker, 3), slot);
  EXPECT_FALSE(server.take(HostSharedArea::Side::kServer, 10'000).has_value()) << "longer than a slot";
}

TEST(HostSharedArea, ATicketWithAnotherSecretOrSizeOpensNothing) {
  const HostSharedArea worker = HostSharedArea::make(2, 4096);
  HostSharedTicket ticket = worker.ticket();
  ticket.secret ^= 1;
  EXPECT_FALSE(HostSharedArea::open(ticket).valid());
  ticket = worker.ticket();
  ticket.num_slots = 3;
  EXPECT_FALSE(HostSharedArea::open(ticket).valid());
}

}  // namespace
}  // namespace trireme::server
