// A rank that is alive but does not move (SIGSTOP), and a connection that is open but carries nothing: named within six
// seconds. A short stop changes nothing.
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "faults/kill_trial.h"
#include "support/paths.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

constexpr auto kNamedBy = 6s;

/// Ranks that have been told who stopped: all but `stopped`. Returns the seconds that the slowest took.
double expect_named(RankProcesses& ranks, int stopped, Clock::time_point since, const std::string& words) {
  double slowest = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == stopped) continue;
    EXPECT_EQ(ranks[rank].wait(Deadline(since + 12s)), 3) << ranks.outputs();
    const auto caught = caught_in(ranks[rank].output());
    if (!caught) {
      ADD_FAILURE() << "rank " << rank << " says nothing of a failure\n" << ranks.outputs();
      continue;
    }
    slowest = std::max(slowest, std::chrono::duration<double>(caught->at - since).count());
    EXPECT_EQ(caught->culprit, stopped) << caught->message;
    EXPECT_TRUE(contains(caught->message, words) && contains(caught->message, fmt::format("rank {} (", stopped)))
        << caught->message;
  }
  EXPECT_LT(slowest, std::chrono::duration<double>(kNamedBy).count()) << ranks.outputs();
  return slowest;
}

RankProcesses start(Wires wires, const std::vector<std::string>& more = {}) {
  RankProcesses::Options options;
  options.size = 3;
  options.wires = wires;
  std::vector<std::string> argv{program_path("loop_program")};
  argv.insert(argv.end(), more.begin(), more.end());
  return RankProcesses(argv, options);
}

TEST(Stop, IsNamedAndTheOneThatWakesLearnsOfIt) {
  // All at the same time, since they mostly wait.
  struct Trial {
    Wires wires;
    int stopped;
  };
  std::vector<std::jthread> trials;
  for (const Trial trial : {Trial{Wires::kSharedMemory, 0}, Trial{Wires::kSharedMemory, 2}, Trial{Wires::kTcp, 0},
                            Trial{Wires::kTcp, 1}, Trial{Wires::kMixedHosts, 0}, Trial{Wires::kMixedHosts, 2}}) {
    trials.emplace_back([trial] {
      RankProcesses ranks = start(trial.wires, {"pause_us=5000"});
      if (!ranks.wait_for("working", 30s)) return;
      const auto stopped_at = Clock::now();
      ranks[trial.stopped].signal(SIGSTOP);
      const double seconds = expect_named(ranks, trial.stopped, stopped_at, "stopped answering");
      ranks[trial.stopped].signal(SIGCONT);
      const auto woken_at = Clock::now();
      EXPECT_EQ(ranks[trial.stopped].wait(Deadline::after(10s)), 3) << ranks.outputs();
      fmt::print("{}, rank {} stopped: named by all within {:.2f} s; woken, it left within {:.2f} s\n",
                 name_of(trial.wires), trial.stopped, seconds,
                 std::chrono::duration<double>(Clock::now() - woken_at).count());
      expect_no_leftovers(ranks);
    });
  }
}

TEST(Stop, ThatIsShortChangesNothing) {
  std::vector<std::jthread> trials;
  for (const Wires wires : {Wires::kSharedMemory, Wires::kTcp, Wires::kMixedHosts}) {
    for (const int stopped : {0, 1}) {
      trials.emplace_back([wires, stopped] {
        RankProcesses ranks = start(wires, {"steps=400", "pause_us=200"});
        if (!ranks.wait_for("working", 30s)) return;
        ranks[stopped].signal(SIGSTOP);
        std::this_thread::sleep_for(1900ms);
        ranks[stopped].signal(SIGCONT);
        EXPECT_EQ(ranks.wait(30s), std::vector<int>(3, 0)) << name_of(wires) << ranks.outputs();
        for (int rank = 0; rank < ranks.size(); ++rank) EXPECT_TRUE(contains(ranks[rank].output(), "done"));
      });
    }
  }
}

TEST(Stop, BeforeTheFirstContactKeepsTheDeadline) {
  RankProcesses::Options options;
  options.size = 3;
  options.wires = Wires::kTcp;
  options.environment["TRIREME_FAULT"] = "rank=1,point=comm.begin,kind=stop,count=1";
  RankProcesses ranks({program_path("loop_program"), "call_ms=500"}, options);
  for (const int rank : {0, 2}) {
    EXPECT_EQ(ranks[rank].wait(Deadline::after(10s)), 3) << ranks.outputs();
    const std::string output = ranks[rank].output();
    EXPECT_TRUE(contains(output, "gave up all-reduce #1") && contains(output, "rank 1 (")) << output;
    EXPECT_TRUE(contains(output, "after 0.5 s") || contains(output, "after 0.6 s")) << output;
  }
  ranks[1].signal(SIGKILL);
  ranks.wait(5s);
}

/// Passes bytes on in both directions until it is told to swallow them; connections stay open.
class Proxy {
 public:
  explicit Proxy(uint16_t to) : to_(to), listener_(listen_on("127.0.0.1", 0, 16)) {
    thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
  }
  uint16_t port() const { return local_address(listener_).port; }
  void swallow() { swallowing_ = true; }

 private:
  void run(std::stop_token stop) {
    std::vector<std::pair<Socket, Socket>> pairs;
    std::vector<std::byte> buffer(1 << 16);
    while (!stop.stop_requested()) {
      std::vector<pollfd> fds{{listener_.fd(), POLLIN, 0}};
      for (const auto& [a, b] : pairs) {
        fds.push_back({a.fd(), POLLIN, 0});
        fds.push_back({b.fd(), POLLIN, 0});
      }
      poll(fds.data(), fds.size(), 20);
      for (size_t i = 1; i < fds.size(); ++i) {
        if (fds[i].revents == 0) continue;
        const auto& [a, b] = pairs[(i - 1) / 2];
        const Socket& from = i % 2 == 1 ? a : b;
        const Socket& to = i % 2 == 1 ? b : a;
        const ssize_t n = recv(from.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (n <= 0 && !(n < 0 && errno == EAGAIN) && !swallowing_) shutdown(to.fd(), SHUT_WR);
        if (n <= 0 || swallowing_) continue;
        try {
          send_all(to, std::span(buffer).first(static_cast<size_t>(n)), Deadline::after(1s));
        } catch (const Error&) {  // it has gone
        }
      }
      if (fds[0].revents == 0) continue;
      Socket client(accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!client.valid()) continue;
      try {
        pairs.emplace_back(std::move(client), connect_once({"127.0.0.1", to_}, Deadline::after(1s)));
      } catch (const Error&) {  // not there yet: the client tries again
      }
    }
  }

  uint16_t to_;
  Socket listener_;
  std::atomic<bool> swallowing_{false};
  std::jthread thread_;
};

TEST(Stop, OfAConnectionIsNamed) {
  // The connection of one rank to the coordinator falls silent in both directions.
  std::vector<std::jthread> trials;
  for (const Wires wires : {Wires::kSharedMemory, Wires::kTcp}) {
    trials.emplace_back([wires] {
      const Socket listener = listen_on("127.0.0.1", 0, 64);
      Proxy proxy(local_address(listener).port);
      RankProcesses::Options options;
      options.size = 3;
      options.wires = wires;
      options.master = fmt::format("127.0.0.1:{}", local_address(listener).port);
      options.kept_fds = {listener.fd()};
      options.of_rank[0]["TRIREME_LISTEN_FD"] = std::to_string(listener.fd());
      options.of_rank[2]["TRIREME_MASTER"] = fmt::format("127.0.0.1:{}", proxy.port());
      RankProcesses ranks({program_path("loop_program"), "pause_us=5000"}, options);
      if (!ranks.wait_for("working", 30s)) return;
      const auto since = Clock::now();
      proxy.swallow();
      const double seconds = expect_named(ranks, 2, since, "stopped answering");
      // The one behind the silent connection cannot tell that from the coordinator's end.
      EXPECT_EQ(ranks[2].wait(Deadline::after(10s)), 3) << ranks.outputs();
      const auto caught = caught_in(ranks[2].output());
      EXPECT_TRUE(caught && caught->at - since < kNamedBy) << ranks.outputs();
      fmt::print("{}, a half-open connection: named within {:.2f} s\n", name_of(wires), seconds);
    });
  }
}

}  // namespace
}  // namespace trireme
