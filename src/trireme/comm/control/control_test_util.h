// What the tests of the control plane share: jobs in one process, and ranks and coordinators made by hand.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <future>
#include <thread>

#include "trireme/comm/control/control.h"
#include "trireme/comm/control/control_handshake.h"
#include "trireme/comm/control/control_protocol.h"

namespace trireme::control::testing {

using namespace std::chrono_literals;
using Planes = std::vector<std::unique_ptr<ControlPlane>>;

inline uint16_t free_port(const std::string& address = "127.0.0.1") {
  return local_address(listen_on(address, 0, 1)).port;
}

struct Job {
  explicit Job(int size_) : size(size_) {}

  int size;
  std::string name = "job " + std::to_string(next_++);
  std::string token = "the token";
  std::string address = "127.0.0.1";
  uint16_t port = free_port();
  std::vector<uint16_t> more_ports;
  int listen_fd = -1;

  LaunchEnvironment environment(int rank) const {
    LaunchEnvironment e;
    e.launcher = Launcher::kTrireme;
    e.rank = e.local_rank = rank;
    e.size = e.local_size = size;
    e.master_address = e.bind_address = address;
    e.master_ports = {port};
    e.master_ports.insert(e.master_ports.end(), more_ports.begin(), more_ports.end());
    e.listen_fd = rank == 0 ? listen_fd : -1;
    e.job = name;
    e.token = token;
    return e;
  }
  Credentials credentials() const { return {token, sha256(name)}; }

 private:
  inline static std::atomic<int> next_{0};
};

inline Member member(int rank = 0, const std::string& host = "test-host") {
  Member m;
  m.rank = rank;
  m.host_name = m.host_id = host;
  m.pid = 4711;
  m.blob = "blob of " + std::to_string(rank);
  return m;
}

inline ControlOptions quick() {
  ControlOptions options;
  options.join_timeout = 20s;
  options.heartbeat_interval = 100ms;
  return options;
}

inline std::unique_ptr<ControlPlane> join(const Job& job, int rank, const ControlOptions& options = quick()) {
  return ControlPlane::join(job.environment(rank), member(rank), options);
}

inline Planes join_all(const Job& job, const ControlOptions& options = quick()) {
  std::vector<std::future<std::unique_ptr<ControlPlane>>> joining;
  for (int r = 0; r < job.size; ++r) {
    joining.push_back(std::async(std::launch::async, [&, r] { return join(job, r, options); }));
  }
  Planes planes;
  for (auto& one : joining) planes.push_back(one.get());
  return planes;
}

inline void leave_all(Planes& planes) {
  std::vector<std::jthread> leaving;
  for (auto& plane : planes) leaving.emplace_back([&plane] { plane->leave(); });
}

inline ::testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << part << "\" is not in \"" << text << "\"";
}

template <typename Condition>
bool eventually(Condition&& condition, Clock::duration patience = 5s) {
  for (const Deadline deadline = Deadline::after(patience); !deadline.expired();) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

/// The words of the exception, which must be of that kind.
template <typename Kind, typename Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Kind& error) {
    return error.what();
  }
  return "nothing was thrown";
}

/// A rank that does only what the test says.
class FakeRank {
 public:
  FakeRank(const Job& job, int rank) : rank_(rank) {
    socket_ = connect_to(job.address, job.port, Deadline::after(5s));
    Hello hello;
    hello.rank = uint32_t(rank);
    hello.size = uint32_t(job.size);
    shake_hands(socket_, job.credentials(), hello, Deadline::after(5s));
  }

  void enrol() {
    Member m = member(rank_, "fake-host");
    m.address = "127.0.0.1";
    m.port = 1;
    send_all(socket_, encode_register(m), Deadline::after(5s));
  }
  void send(const Bytes& bytes) { send_all(socket_, *bytes, Deadline::after(5s)); }
  Frame receive() { return receive_frame(socket_, kHeaderBytes + kMaxPayloadBytes, Deadline::after(5s)); }

 private:
  int rank_;
  Socket socket_;
};

/// A coordinator of two ranks that does only what the test says.
class FakeCoordinator {
 public:
  explicit FakeCoordinator(const Job& job) : job_(job), listener_(listen_on(job.address, job.port, 16)) {}

  void serve_one() {
    const Deadline deadline = Deadline::after(5s);
    while (!socket_.valid() && !deadline.expired()) {
      socket_ = Socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    }
    Digest nonce{};
    send_all(socket_, FrameWriter(FrameType::kChallenge).raw(nonce).finish(), deadline);
    const Hello hello = decode_hello(receive_frame(socket_, kMaxHandshakeBytes, deadline).payload);
    const Digest proof = mac_of(hello, nonce, job_.token, "server");
    send_all(socket_, FrameWriter(FrameType::kWelcome).raw(proof).finish(), deadline);
    const Member one = decode_register(receive_frame(socket_, kMaxPayloadBytes, deadline).payload);
    send_all(socket_, *encode_table({member(0, "fake-host"), one}), deadline);
  }
  void close() { socket_ = Socket(); }

 private:
  Job job_;
  Socket listener_, socket_;
};

/// How the coordinator refuses a hello that `change` has changed; its proof is right for what it says.
template <typename Change>
Refusal refusal_of(const Job& job, Change&& change) {
  const Deadline deadline = Deadline::after(5s);
  const Socket socket = connect_to(job.address, job.port, deadline);
  Hello hello;
  hello.rank = uint32_t(job.size) - 1;
  hello.size = uint32_t(job.size);
  change(hello);
  try {
    shake_hands(socket, job.credentials(), hello, deadline);
  } catch (const Refused& refused) {
    return refused.refusal();
  }
  return {};
}

/// Sends a pattern through and checks what arrives.
inline void exchange(const Socket& from, const Socket& to, size_t num_bytes) {
  std::vector<std::byte> sent(num_bytes), received(num_bytes);
  for (size_t i = 0; i < num_bytes; ++i) sent[i] = std::byte(i * 31);
  std::jthread sender([&] { send_all(from, sent, Deadline::after(5s)); });
  recv_all(to, received, Deadline::after(5s));
  EXPECT_EQ(sent, received);
}

}  // namespace trireme::control::testing
