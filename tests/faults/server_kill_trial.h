// One job of parameter servers and workers in which somebody is killed, and what must follow.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <random>
#include <sstream>
#include <thread>

#include "support/paths.h"
#include "support/process_group.h"
#include "trireme/base/crc32c.h"

namespace trireme {

struct ServerKillTrial {
  uint64_t seed = 0;
  std::string mode = "sync";
  int num_servers = 3, num_workers = 3, num_steps = 200;
  int num_kills = 1;          ///< of servers, one after another, each replaced
  bool kills_worker = false;  ///< one worker, which is replaced
  bool waits = false;         ///< rounds wait for a dead worker's replacement; otherwise they soon close without it
  bool stops = false;         ///< servers are stopped, and wake up after they were replaced
};

/// The processes of the job, by name: "server 1", "worker 0".
class ServerJob {
 public:
  explicit ServerJob(const ServerKillTrial& trial, bool host_shared) : trial_(trial), host_shared_(host_shared) {
    std::vector<Socket> listeners;  // all at once, so that all ports differ; servers bind them anew
    for (int i = 0; i < trial.num_servers; ++i) {
      listeners.push_back(listen_on("127.0.0.1", 0, 1));
      ports_ += fmt::format("{}{}", i > 0 ? "," : "", local_address(listeners.back()).port);
    }
    listeners.clear();
    for (int i = 0; i < trial.num_servers; ++i) start_server(i);
    for (int i = 0; i < trial.num_workers; ++i) start_worker(i);
  }

  void start_server(int index) { start(fmt::format("server {}", index), "server", index); }
  void start_worker(int index) { start(fmt::format("worker {}", index), "worker", index); }
  ChildProcess& of(const std::string& name) { return *children_.at(name); }

  /// The last "state P R T" of a server.
  std::vector<int> state_of(int server) {
    std::vector<int> state(3);
    std::istringstream lines(of(fmt::format("server {}", server)).output());
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("state ")) std::istringstream(line.substr(6)) >> state[0] >> state[1] >> state[2];
    }
    return state;
  }
  bool is_replicated() {
    int primary = 0, replicated = 0;
    for (int i = 0; i < trial_.num_servers; ++i) {
      const auto state = state_of(i);
      primary += state[0];
      replicated += state[1];
    }
    return primary == trial_.num_servers && replicated == primary;
  }
  bool workers_ended() {
    for (int i = 0; i < trial_.num_workers; ++i) {
      if (!of(fmt::format("worker {}", i)).poll()) return false;
    }
    return true;
  }
  std::string outputs() const {
    std::string text;
    for (const auto& [name, child] : children_) {
      const std::string output = child->output();
      text += fmt::format("--- {}\n{}", name, output.substr(output.size() > 600 ? output.size() - 600 : 0));
    }
    return text;
  }

 private:
  void start(const std::string& name, const std::string& role, int index) {
    std::vector<std::string> argv = {program_path("parameter_server_program"),
                                     "role=" + role,
                                     fmt::format("index={}", index),
                                     "ports=" + ports_,
                                     fmt::format("workers={}", trial_.num_workers),
                                     fmt::format("steps={}", trial_.num_steps),
                                     "mode=" + trial_.mode,
                                     "replicate=1",
                                     fmt::format("shared={}", host_shared_ ? 1 : 0),
                                     "pause_us=5000",
                                     fmt::format("grace_ms={}", trial_.waits ? 60'000 : 300)};
    children_[name] =
        std::make_unique<ChildProcess>(argv, Environment{}, folder_.path() / fmt::format("output-{}", num_started_++));
  }

  ScratchFolder folder_;
  ServerKillTrial trial_;
  bool host_shared_;
  std::string ports_;
  int num_started_ = 0;
  std::map<std::string, std::unique_ptr<ChildProcess>> children_;
};

/// What all of them must end with where every push counts once: −Σ of all gradients, which are small whole numbers.
inline uint32_t expected_checksum(const ServerKillTrial& trial) {
  uint32_t checksum = 0;
  for (const size_t count : {20'001, 7, 9'000}) {
    std::vector<float> weights(count);
    for (int clock = 0; clock < trial.num_steps; ++clock) {
      for (int worker = 0; worker < trial.num_workers; ++worker) {
        for (size_t i = 0; i < count; ++i) {
          weights[i] -= static_cast<float>((i + 3 * static_cast<size_t>(worker) + static_cast<size_t>(clock)) % 5);
        }
      }
    }
    checksum = crc32c(std::as_bytes(std::span(weights)), checksum);
  }
  return checksum;
}

/// Runs it. Returns the seconds from the last kill of a server until all is replicated again.
inline double server_kill_trial(const ServerKillTrial& trial) {
  using namespace std::chrono_literals;
  std::mt19937_64 random(trial.seed * 31 + 7);
  ServerJob job(trial, random() % 2 == 0);
  const auto wait_for = [&](const auto& condition, const char* what) {
    const Deadline deadline = Deadline::after(30s);
    while (!condition() && !job.workers_ended()) {
      if (deadline.expired()) {
        ADD_FAILURE() << "seed " << trial.seed << ", " << trial.mode << ": " << what << "\n" << job.outputs();
        return false;
      }
      std::this_thread::sleep_for(2ms);
    }
    return true;
  };
  double recovered = 0;
  for (int i = 0; i < trial.num_workers; ++i) {
    if (!job.of(fmt::format("worker {}", i)).wait_for("step ", Deadline::after(30s))) return 0;
  }
  if (!wait_for([&] { return job.is_replicated(); }, "not replicated at the start")) return 0;
  for (int kill = 0; kill < trial.num_kills; ++kill) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    EXPECT_FALSE(job.workers_ended()) << "seed " << trial.seed << ": too late to kill anybody";
    const int victim = static_cast<int>(random() % static_cast<uint64_t>(trial.num_servers));
    const auto killed = Clock::now();
    if (trial.stops) {
      job.of(fmt::format("server {}", victim)).signal(SIGSTOP);
      const int heir = (victim + 1) % trial.num_servers;
      if (!wait_for([&] { return job.state_of(heir)[2] > 0; }, "nobody takes over")) return 0;
      job.of(fmt::format("server {}", victim)).signal(SIGCONT);
      if (!wait_for([&] { return job.is_replicated(); }, "not replicated after a stopped server woke up")) return 0;
      continue;
    }
    job.of(fmt::format("server {}", victim)).signal(SIGKILL);
    EXPECT_EQ(job.of(fmt::format("server {}", victim)).wait(Deadline::after(5s)), 128 + SIGKILL);
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    job.start_server(victim);
    if (!wait_for([&] { return job.is_replicated(); }, "not replicated after a new server")) return 0;
    recovered = std::chrono::duration<double>(Clock::now() - killed).count();
  }
  if (trial.kills_worker) {
    const int victim = static_cast<int>(random() % static_cast<uint64_t>(trial.num_workers));
    job.of(fmt::format("worker {}", victim)).signal(SIGKILL);
    job.of(fmt::format("worker {}", victim)).wait(Deadline::after(5s));
    if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(random() % 500));
    job.start_worker(victim);
  }
  const std::string expected = fmt::format("{:08x}", expected_checksum(trial));
  int num_right = 0;
  for (int i = 0; i < trial.num_workers; ++i) {
    ChildProcess& worker = job.of(fmt::format("worker {}", i));
    EXPECT_EQ(worker.wait(Deadline::after(60s)), 0) << "seed " << trial.seed << "\n" << job.outputs();
    const std::string output = worker.output();
    const size_t at = output.find("reached ");
    if (at == std::string::npos) {
      ADD_FAILURE() << "seed " << trial.seed << ": worker " << i << " has not ended\n" << job.outputs();
      return recovered;
    }
    num_right += output.substr(at + 8, 8) == expected;
  }
  // Rounds count each push once, unless they close without a dead worker. Where there are none the last to pull sees
  // what all have pushed, and a killed worker's last step may count or not.
  if (trial.mode == "sync" && (!trial.kills_worker || trial.waits)) {
    EXPECT_EQ(num_right, trial.num_workers) << "seed " << trial.seed << ", sync";
  } else if (!trial.kills_worker) {
    EXPECT_GE(num_right, 1) << "seed " << trial.seed << ", " << trial.mode;
  }
  return recovered;
}

}  // namespace trireme
