// A parameter server that was too busy to answer a join in time sends signs of life first; the worker took the first of
// them for the answer, and said that the frame was too short.
//
// ctest: sanitize
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "trireme/server/dialer.h"

namespace trireme::server {
namespace {

TEST(BusyServer, SignsOfLifeAreNoAnswer) {
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  const Socket server(fds[0]), worker(fds[1]);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  send_small_frame(server, Type::kPulse, {}, deadline);
  send_small_frame(server, Type::kPulse, {}, deadline);
  send_small_frame(server, Type::kNotPrimary, encode_text("worker 0 is already there"), deadline);
  const WireFrame answer = receive_answer(worker, deadline);
  EXPECT_EQ(answer.type, Type::kNotPrimary);
  EXPECT_EQ(decode_text(answer.meta), "worker 0 is already there");
}

}  // namespace
}  // namespace trireme::server
