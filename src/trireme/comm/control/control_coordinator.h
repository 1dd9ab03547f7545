// The serving side of the control plane: one thread inside rank 0 that knows who is there, who is alive and what
// failed.
#pragma once

#include <atomic>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "trireme/comm/control/control.h"
#include "trireme/comm/control/control_connection.h"
#include "trireme/comm/control/control_gate.h"
#include "trireme/comm/control/control_silence.h"

namespace trireme::control {

struct CoordinatorOptions {
  int size = 1;
  Credentials credentials;
  ControlOptions control;
  GateLimits gate;
  Clock::duration linger = std::chrono::seconds(5);  ///< how long it outlives rank 0 while others are still in the job
};

/// Serves from construction to destruction. The destructor waits for the ranks that have not left, at most `linger` and
/// a second; it tells them that rank 0 is gone.
class Coordinator {
 public:
  Coordinator(Socket listener, CoordinatorOptions options);
  ~Coordinator();

  const SocketAddress& address() const { return address_; }
  /// Strangers that were dropped without an answer, so far.
  uint64_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  enum class Phase { kAssembling, kRunning, kClosing };
  enum class Presence { kAbsent, kPresent, kLeft, kFailed };

  struct Rank {
    Presence presence = Presence::kAbsent;
    bool gave_up = false;  ///< left again while the others were still joining
    int fd = -1;
    Member member;
    Beat beat;
    Clock::time_point last_heard;
  };
  struct Client {
    std::unique_ptr<Connection> connection;
    int rank = -1;            ///< by its proof
    bool registered = false;  ///< and it is the one that holds the rank
    Clock::time_point since;
  };

  void run() noexcept;
  void serve();
  int wait_ms(Clock::time_point now) const;
  std::optional<Refusal> judge(const Hello& hello) const;
  void admit(Socket socket, const Hello& hello);

  void read(int fd);
  /// False when the frame makes no sense.
  bool handle(int fd, const Frame& frame);
  bool enrol(int fd, Member member);
  void complete();
  void say_goodbye(Client& client);
  void lose(int fd);

  void fail(int culprit, std::string message);
  void broadcast(const Bytes& bytes, bool only_idle = false);
  void pulse(Clock::time_point now);
  void judge_silence(Clock::time_point now);
  Waiting waiting() const;
  std::vector<RankStatus> survey(Clock::time_point now) const;
  std::string describe(int rank) const;
  std::string last_heard_of(int rank) const;

  bool ready_to_close(Clock::time_point now) const;
  void close_down();

  CoordinatorOptions options_;
  SocketAddress address_;
  Poller poller_;
  std::optional<Gate> gate_;
  std::unordered_map<int, Client> clients_;
  std::vector<Rank> ranks_;
  int num_present_ = 0;
  Phase phase_ = Phase::kAssembling;
  std::optional<Failure> failure_;
  Clock::time_point next_pulse_;
  Clock::time_point close_by_ = Clock::time_point::max();
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> num_dropped_{0};
  std::jthread thread_;
};

}  // namespace trireme::control
