// The control plane as one rank of several sees it: its connection to the coordinator, its door for data connections.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "trireme/comm/control/control.h"
#include "trireme/comm/control/control_connection.h"
#include "trireme/comm/control/control_coordinator.h"
#include "trireme/comm/control/control_failure.h"
#include "trireme/comm/control/control_gate.h"

namespace trireme::control {

/// What joining yields: everything that a rank needs from then on.
struct Joined {
  int rank = 0;
  std::vector<Member> members;
  Credentials credentials;
  std::unique_ptr<Coordinator> coordinator;  ///< rank 0 only; ends after the connection to it
  Socket connection;                         ///< to the coordinator, registered
  Socket listener;                           ///< for data connections
};

class RankControl final : public ControlPlane {
 public:
  RankControl(Joined joined, const ControlOptions& options);
  ~RankControl() override;

  const std::vector<Member>& members() const override { return members_; }
  RankProgress& progress() override { return progress_; }
  const Failure* failure() const noexcept override { return failure_.first(); }
  void report(const Failure& failure) noexcept override;
  std::vector<RankStatus> survey(Deadline deadline) override;
  Socket connect(int peer, uint64_t channel, Deadline deadline) override;
  std::optional<Socket> accept(int peer, uint64_t channel) override;
  void leave() noexcept override;

 private:
  using Key = std::pair<int, uint64_t>;  ///< peer, channel

  void run() noexcept;
  void serve();
  void post(Bytes bytes);
  void read_connection();
  void handle(const Frame& frame);
  void lose_coordinator();
  std::optional<Refusal> judge(const Hello& hello);
  void admit(Socket socket, const Hello& hello);

  const int rank_;
  const std::vector<Member> members_;
  const Credentials credentials_;
  const ControlOptions options_;
  RankProgress progress_;
  FirstFailure failure_;

  // Of the background thread alone.
  Poller poller_;
  std::unique_ptr<Connection> connection_;
  std::optional<Gate> gate_;
  Clock::time_point last_heard_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Bytes> outbox_;
  std::map<Key, Socket> arrived_;
  std::map<uint64_t, std::vector<RankStatus>> answers_;
  uint64_t num_questions_ = 0;
  bool connected_ = true;
  bool leaving_ = false;

  std::mutex leave_mutex_;
  std::unique_ptr<Coordinator> coordinator_;
  std::jthread thread_;
};

}  // namespace trireme::control
