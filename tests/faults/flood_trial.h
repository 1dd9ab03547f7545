// Strangers at every port of a running job: the job goes on, and its memory stays flat.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <fstream>
#include <thread>

#include "faults/kill_trial.h"
#include "support/paths.h"
#include "trireme/base/error.h"

namespace trireme {

/// The TCP ports on which a process listens.
inline std::vector<uint16_t> listening_ports(pid_t pid) {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid))) {
    std::error_code ignored;
    sockets.insert(std::filesystem::read_symlink(entry.path(), ignored));
  }
  std::vector<uint16_t> ports;
  std::ifstream table(fmt::format("/proc/{}/net/tcp", pid));
  std::string line;
  std::getline(table, line);
  while (std::getline(table, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, skip, inode;
    words >> number >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) words >> skip;
    words >> inode;
    if (state == "0A" && sockets.contains("socket:[" + inode + "]"))
      ports.push_back(static_cast<uint16_t>(std::stoi(local.substr(local.find(':') + 1), nullptr, 16)));
  }
  return ports;
}

inline size_t resident_bytes(pid_t pid) {
  size_t total = 0, resident = 0;
  std::ifstream(fmt::format("/proc/{}/statm", pid)) >> total >> resident;
  return resident * 4096;
}

/// Noise, silence, beginnings of handshakes, and slow bytes; the last few hundred stay open. Returns how many were
/// connected.
inline int flood(uint16_t port, int num_connections, uint64_t seed) {
  using namespace std::chrono_literals;
  std::mt19937_64 random(seed);
  std::deque<Socket> held;
  int connected = 0;
  for (int i = 0; i < num_connections; ++i) {
    try {
      Socket socket = connect_once({"127.0.0.1", port}, Deadline::after(2s));
      ++connected;
      std::vector<std::byte> bytes(random() % 700);
      for (std::byte& b : bytes) b = static_cast<std::byte>(random());
      if (random() % 2 == 0 && bytes.size() > 12)
        std::memcpy(bytes.data(), "TRRM\1\0\2\0\xff\0\0\0", 12);  // as a Hello begins
      if (random() % 4 != 0) send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (random() % 2 == 0) held.push_back(std::move(socket));
    } catch (const Error&) {  // turned away at the door
    }
    if (held.size() > 300) held.pop_front();
    if (!held.empty() && random() % 4 == 0)
      send(held[random() % held.size()].fd(), "\1", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  return connected;
}

/// A job of two ranks that takes so many steps of a millisecond, and so many strangers at each of two ports.
inline void flood_trial(int num_steps, int num_strangers) {
  using namespace std::chrono_literals;
  RankProcesses::Options options;
  options.size = 2;
  options.wires = Wires::kTcp;
  RankProcesses ranks({program_path("loop_program"), fmt::format("steps={}", num_steps), "pause_us=1000"}, options);
  ASSERT_TRUE(ranks.wait_for("working", 20s));
  const std::vector<uint16_t> data_ports = listening_ports(ranks[1].pid());
  ASSERT_EQ(data_ports.size(), 1u);
  // A first wave, so that memory that is only taken once is taken.
  flood(ranks.port(), 400, 1);
  flood(data_ports[0], 400, 2);
  const size_t before[] = {resident_bytes(ranks[0].pid()), resident_bytes(ranks[1].pid())};
  const auto start = Clock::now();
  std::atomic<int> connected{0};
  {
    std::jthread one([&] { connected += flood(ranks.port(), num_strangers, test_seed() + 3); });
    std::jthread other([&] { connected += flood(data_ports[0], num_strangers, test_seed() + 4); });
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_FALSE(ranks[0].poll() || ranks[1].poll()) << "the job ended before the flood\n" << ranks.outputs();
  size_t grown = 0;
  for (const int rank : {0, 1}) {
    const size_t now = resident_bytes(ranks[rank].pid());
    grown = std::max(grown, now - std::min(now, before[rank]));
  }
  EXPECT_LT(grown, size_t{4} << 20);
  EXPECT_EQ(ranks.wait(std::chrono::milliseconds(3 * num_steps) + 20s), std::vector<int>(2, 0)) << ranks.outputs();
  EXPECT_GT(connected.load(), num_strangers * 9 / 5);
  fmt::print("{} strangers in {:.1f} s: the job went on, memory grew by {} KiB\n", connected.load(), seconds,
             grown / 1024);
  EXPECT_LT(seconds, 30);
}

}  // namespace trireme
