// Strangers at the door: garbage, silence and floods cost little, and honest clients are still served.
#include "trireme/comm/control/control_gate.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <random>

#include "trireme/comm/control/control_coordinator.h"
#include "trireme/comm/control/control_test_util.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace trireme::control {
namespace {

using namespace testing;

Coordinator serve(const Job& job, GateLimits limits = {}) {
  CoordinatorOptions options;
  options.size = job.size;
  options.credentials = job.credentials();
  options.control = quick();
  options.gate = limits;
  return Coordinator(listen_on(job.address, job.port, 4096), options);
}

size_t resident_bytes() {
  size_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * 4096;
}

/// What an honest client does: again after a reset. Returns how long it took to be let in.
Clock::duration knock(const Job& job) {
  const auto start = Clock::now();
  const Deadline deadline = Deadline::after(10s);
  Hello hello;
  hello.rank = 1;
  hello.size = uint32_t(job.size);
  for (;;) {
    try {
      const Socket socket = connect_once({job.address, job.port}, deadline);
      shake_hands(socket, job.credentials(), hello, deadline);
      return Clock::now() - start;
    } catch (const SystemError&) {
      if (deadline.expired()) throw;
    }
  }
}

/// Opens connections of many bad kinds, keeping the last `num_held` open.
void flood(const Job& job, int num_connections, size_t num_held, unsigned seed) {
  std::minstd_rand random(seed);
  std::deque<Socket> held;
  const std::vector<std::byte> hello = encode(Hello{});
  for (int i = 0; i < num_connections; ++i) {
    Socket socket;
    try {
      socket = connect_once({job.address, job.port}, Deadline::after(10s));
    } catch (const SystemError&) {
      continue;
    }
    std::vector<std::byte> bytes(random() % 700);
    for (std::byte& b : bytes) b = std::byte(random());
    switch (random() % 5) {
      case 0:  // says nothing, and stays
        bytes.clear();
        break;
      case 1:  // begins like a frame, and goes on at random
        if (bytes.size() >= kHeaderBytes) std::copy_n(hello.begin(), random() % kHeaderBytes, bytes.begin());
        break;
      case 2:  // promises more than it may send
        bytes = FrameWriter(FrameType::kHello).raw(std::vector<std::byte>(5000)).finish();
        break;
      case 3:  // a whole hello with a wrong proof, or the beginning of one
        bytes = hello;
        bytes.resize(random() % (hello.size() + 1));
        break;
      default:
        break;
    }
    [[maybe_unused]] const ssize_t n = ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (random() % 2 == 0) held.push_back(std::move(socket));
    if (held.size() > num_held) held.pop_front();
  }
}

TEST(ControlGate, GarbageLeavesHonestClientsServedAndMemoryFlat) {
  const int num_connections = SANITIZED ? 4'000 : 20'000;
  const Job job(2);
  Coordinator coordinator = serve(job);
  flood(job, 2'000, 1'000, 1);
  const size_t before = resident_bytes();
  std::vector<Clock::duration> waits;
  {
    std::atomic<int> running{2};
    std::vector<std::jthread> flooders;
    for (unsigned seed : {2u, 3u}) {
      flooders.emplace_back([&, seed] {
        flood(job, num_connections / 2, 1'000, seed);
        --running;
      });
    }
    while (running > 0) {
      waits.push_back(knock(job));
      std::this_thread::sleep_for(5ms);
    }
  }
  std::ranges::sort(waits);
  const auto wait_ms = [&](double quantile) {
    const size_t i = std::min(waits.size() - 1, size_t(quantile * double(waits.size())));
    return std::chrono::duration<double, std::milli>(waits[i]).count();
  };
  std::printf("%zu honest clients during %d bad ones: median %.1f ms, worst %.1f ms; memory grew by %.1f MB\n",
              waits.size(), num_connections, wait_ms(0.5), wait_ms(1),
              (double(resident_bytes()) - double(before)) / 1e6);
  EXPECT_GT(coordinator.num_dropped(), uint64_t(num_connections) / 2);
  // Not the worst: the flood comes from this very machine, and takes its cores.
  EXPECT_LT(wait_ms(0.9), SANITIZED ? 2000 : 200);
  EXPECT_LT(resident_bytes(), before + (SANITIZED ? 64 : 4) * 1'000'000);
}

TEST(ControlGate, SlowStrangersHaveTheirTimeAndNoMore) {
  const Job job(2);
  GateLimits limits;
  limits.patience = 100ms;
  Coordinator coordinator = serve(job, limits);
  const Socket slow = connect_to(job.address, job.port, Deadline::after(5s));
  receive_frame(slow, kMaxHandshakeBytes, Deadline::after(5s));
  const std::vector<std::byte> hello = encode(Hello{});
  const auto start = Clock::now();
  EXPECT_THROW(
      {
        for (std::byte b : hello) {
          send_all(slow, std::span(&b, 1), Deadline::after(5s));
          std::this_thread::sleep_for(5ms);
        }
        std::byte answer[200];
        recv_all(slow, answer, Deadline::after(5s));
      },
      SystemError);
  EXPECT_GT(Clock::now() - start, 90ms);
  EXPECT_LT(Clock::now() - start, 2s);
}

TEST(ControlGate, WhoeverSpeaksBeforeTheChallengeIsTurnedAway) {
  const Job job(2);
  const Socket listener = listen_on(job.address, job.port, 4096);
  const Socket early = connect_to(job.address, job.port, Deadline::after(5s));
  send_all(early, encode(Hello{}), Deadline::after(5s));
  CoordinatorOptions options;
  options.size = job.size;
  options.credentials = job.credentials();
  const Coordinator coordinator(Socket(::dup(listener.fd())), options);
  std::byte byte;
  EXPECT_THROW(recv_all(early, std::span(&byte, 1), Deadline::after(5s)), SystemError);
}

TEST(ControlGate, TheOldestStrangerMakesRoom) {
  const Job job(2);
  GateLimits limits;
  limits.max_strangers = 8;
  Coordinator coordinator = serve(job, limits);
  std::vector<Socket> strangers;
  for (int i = 0; i < 9; ++i) {
    strangers.push_back(connect_to(job.address, job.port, Deadline::after(5s)));
    receive_frame(strangers.back(), kMaxHandshakeBytes, Deadline::after(5s));
  }
  std::byte byte;
  EXPECT_THROW(recv_all(strangers[0], std::span(&byte, 1), Deadline::after(5s)), SystemError);
  EXPECT_EQ(::recv(strangers[1].fd(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  knock(job);
}

TEST(ControlGate, AProofIsGoodForOneConnectionOnly) {
  const Job job(2);
  Coordinator coordinator = serve(job);
  // What somebody who has listened in could try: the same hello once more.
  std::vector<std::byte> overheard;
  {
    const Socket honest = connect_to(job.address, job.port, Deadline::after(5s));
    const Frame challenge = receive_frame(honest, kMaxHandshakeBytes, Deadline::after(5s));
    Digest nonce;
    std::ranges::copy(challenge.payload, nonce.begin());
    Hello hello;
    hello.rank = 1;
    hello.size = 2;
    hello.job = job.credentials().job;
    hello.mac = mac_of(hello, nonce, job.token, "client");
    overheard = encode(hello);
    send_all(honest, overheard, Deadline::after(5s));
    EXPECT_EQ(receive_frame(honest, kMaxHandshakeBytes, Deadline::after(5s)).type, FrameType::kWelcome);
  }
  const Socket thief = connect_to(job.address, job.port, Deadline::after(5s));
  receive_frame(thief, kMaxHandshakeBytes, Deadline::after(5s));
  send_all(thief, overheard, Deadline::after(5s));
  const Frame answer = receive_frame(thief, kMaxHandshakeBytes, Deadline::after(5s));
  ASSERT_EQ(answer.type, FrameType::kRefusal);
  EXPECT_EQ(decode_refusal(answer.payload).code, RefusalCode::kWrongToken);
}

}  // namespace
}  // namespace trireme::control
