// Sockets: both address families, deadlines that hold, errors that name the address.
#include "trireme/comm/transport/socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <thread>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

Socket accept_one(const Socket& listener) {
  for (const Deadline deadline = Deadline::after(5s); !deadline.expired();) {
    Socket socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) return socket;
  }
  return {};
}

int error_number_of(const auto& body) {
  try {
    body();
  } catch (const SystemError& error) {
    return error.error_number();
  }
  return 0;
}

class SocketOf : public testing::TestWithParam<const char*> {};

TEST_P(SocketOf, CarriesBytesBothWays) {
  const Socket listener = listen_on(GetParam(), 0, 4);
  const SocketAddress address = local_address(listener);
  EXPECT_EQ(address.host, GetParam());
  const Socket client = connect_to(GetParam(), address.port, Deadline::after(5s));
  const Socket server = accept_one(listener);
  EXPECT_EQ(peer_address(client).port, address.port);
  EXPECT_EQ(peer_address(server).port, local_address(client).port);

  std::vector<std::byte> sent(4 << 20, std::byte{7}), received(sent.size());
  std::jthread sender([&] { send_all(client, sent, Deadline::after(5s)); });
  recv_all(server, received, Deadline::after(5s));
  EXPECT_EQ(sent, received);
}

TEST_P(SocketOf, IsNonBlockingCloseOnExecAndPrompt) {
  const Socket listener = listen_on(GetParam(), 0, 4);
  const Socket client = connect_to(GetParam(), local_address(listener).port, Deadline::after(5s));
  for (int fd : {listener.fd(), client.fd()}) {
    EXPECT_TRUE(::fcntl(fd, F_GETFL) & O_NONBLOCK);
    EXPECT_TRUE(::fcntl(fd, F_GETFD) & FD_CLOEXEC);
  }
  int no_delay = 0;
  socklen_t size = sizeof no_delay;
  ::getsockopt(client.fd(), IPPROTO_TCP, TCP_NODELAY, &no_delay, &size);
  EXPECT_NE(no_delay, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, SocketOf, testing::Values("127.0.0.1", "::1"));

TEST(Socket, MovesItsDescriptor) {
  Socket a = listen_on("127.0.0.1", 0, 1);
  const int fd = a.fd();
  Socket b(std::move(a));
  EXPECT_FALSE(a.valid());
  a = std::move(b);
  EXPECT_EQ(a.fd(), fd);
  a = Socket();
  EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(SocketListenOn, NamesTheAddressThatIsInUse) {
  const Socket first = listen_on("127.0.0.1", 0, 1);
  const uint16_t port = local_address(first).port;
  try {
    listen_on("127.0.0.1", port, 1);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_EQ(error.error_number(), EADDRINUSE);
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  }
  EXPECT_EQ(error_number_of([] { listen_on("192.0.2.1", 0, 1); }), EADDRNOTAVAIL);
  EXPECT_THROW(listen_on("localhost.", 0, 1), UsageError);
}

TEST(SocketConnectTo, RetriesUntilSomebodyListens) {
  const uint16_t port = local_address(listen_on("127.0.0.1", 0, 1)).port;
  std::jthread later([port, listener = Socket()]() mutable {
    std::this_thread::sleep_for(50ms);
    listener = listen_on("127.0.0.1", port, 1);
    std::this_thread::sleep_for(300ms);
  });
  EXPECT_TRUE(connect_to("localhost", port, Deadline::after(5s)).valid());
}

TEST(SocketConnectTo, EndsAtTheDeadline) {
  const uint16_t port = local_address(listen_on("127.0.0.1", 0, 1)).port;
  const auto start = Clock::now();
  EXPECT_EQ(error_number_of([&] { connect_to("127.0.0.1", port, Deadline::after(100ms)); }), ECONNREFUSED);
  EXPECT_LT(Clock::now() - start, 300ms);
}

TEST(SocketRecvAll, EndsAtTheDeadlineAndAtTheEndOfTheStream) {
  const Socket listener = listen_on("127.0.0.1", 0, 1);
  Socket client = connect_to("127.0.0.1", local_address(listener).port, Deadline::after(5s));
  const Socket server = accept_one(listener);
  std::byte buffer[10];
  const auto start = Clock::now();
  EXPECT_EQ(error_number_of([&] { recv_all(server, buffer, Deadline::after(50ms)); }), ETIMEDOUT);
  EXPECT_LT(Clock::now() - start, 300ms);
  EXPECT_EQ(error_number_of([&] { send_all(client, std::vector<std::byte>(64 << 20), Deadline::after(50ms)); }),
            ETIMEDOUT);
  client = connect_to("127.0.0.1", local_address(listener).port, Deadline::after(5s));
  const Socket other = accept_one(listener);
  client = Socket();
  EXPECT_EQ(error_number_of([&] { recv_all(other, buffer, Deadline::after(5s)); }), ECONNRESET);
}

TEST(SocketLiterals, KnowsLiterals) {
  EXPECT_TRUE(is_loopback("127.0.0.1") && is_loopback("127.9.8.7") && is_loopback("::1") && is_loopback("localhost"));
  EXPECT_TRUE(is_loopback("::ffff:127.0.0.1"));
  EXPECT_FALSE(is_loopback("10.0.0.1") || is_loopback("::2") || is_loopback("node-1") || is_loopback(""));
  EXPECT_TRUE(is_wildcard("0.0.0.0") && is_wildcard("::"));
  EXPECT_FALSE(is_wildcard("127.0.0.1") || is_wildcard("::1") || is_wildcard("any"));
  EXPECT_EQ(to_string({"::1", 5}), "[::1]:5");
  EXPECT_EQ(to_string({"10.0.0.1", 5}), "10.0.0.1:5");
}

TEST(SocketResolve, UnknownNamesAreToldInTime) {
  const auto start = Clock::now();
  EXPECT_THROW(resolve("no-such-host.invalid", Deadline::after(200ms)), Error);
  EXPECT_LT(Clock::now() - start, 500ms);
}

}  // namespace
}  // namespace trireme
