// The thread of a parameter server: connections, requests and replicas. For server*.cpp only.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "trireme/comm/control/control_gate.h"
#include "trireme/server/channel.h"
#include "trireme/server/dialer.h"
#include "trireme/server/server.h"
#include "trireme/server/wire_state.h"

namespace trireme::server {

/// One connection, from a worker or from another server.
struct Session {
  Session(control::Poller& poller, Socket socket, uint64_t id_) : channel(poller, std::move(socket)), id(id_) {}

  Channel channel;
  uint64_t id;
  bool is_replica = false;  ///< another server
  int shard = 0;
  uint32_t worker = 0;  ///< or the other server
  uint64_t incarnation = 0;
  bool joined = false, said_goodbye = false;
  bool closing = false;    ///< at the next occasion
  bool finishing = false;  ///< once all that is queued has left
  HostSharedArea area;
  uint64_t event_ack = 0;  ///< to be sent to the primary
};

/// A shard on this server.
struct Hosted {
  int shard = 0;
  Role role = Role::kEmpty;
  uint64_t epoch = 0;
  std::unique_ptr<Shard> state, loading;

  // Of a primary.
  bool solo = false;     ///< answers without waiting for a replica
  uint64_t replica = 0;  ///< session; 0: none
  uint64_t log = 0, acked = 0, state_log = 0;
  bool has_all = false;  ///< the replica
  struct HeldAnswer {
    uint64_t log;
    uint64_t session;
    Type type;
    uint64_t request;
    std::vector<std::byte> meta;  ///< of data: made when it leaves
    Block data;
    uint32_t priority;
  };
  std::deque<HeldAnswer> held;
  struct Waiting {
    uint64_t session;
    uint64_t request;
    Query query;
    Block rows;
    Clock::time_point note_at;
  };
  std::multimap<uint32_t, Waiting> waiting;  ///< by piece
  std::map<uint32_t, uint64_t> session_of_worker;
  std::map<uint32_t, Clock::time_point> gone;  ///< workers without a connection, and when they are left out

  // Of a backup.
  uint64_t source = 0;  ///< session of the primary
  uint64_t source_instance = 0;

  // The other server of the shard.
  bool dialing = false;
  Clock::time_point next_dial{};
  Clock::time_point lost_at{};  ///< when its connection ended
};

class ServerLoop {
 public:
  ServerLoop(const ServerOptions& options, Socket listener, std::vector<SocketAddress> addresses);
  /// Until stop() is called.
  void run();
  void stop();
  /// Hangs up on everybody; for the thread of run(), after it.
  void hang_up();
  ServerStats stats() const;
  bool is_done() const { return done_.load(); }

 private:
  // server_loop.cpp
  void admit(Socket socket, const control::Hello& hello);
  Session& open_session(Socket socket, int shard, uint32_t peer);
  void handle(Session& session);
  void handle_frame(Session& session, WireFrame frame);
  void tick();
  void sweep();
  void close_session(uint64_t id);
  void publish_stats();
  Session* find(uint64_t id);
  Hosted* hosted(int shard);

  // server_requests.cpp
  void handle_join(Session& session, const WireFrame& frame);
  void handle_event(Session& session, WireFrame frame);
  void handle_query(Session& session, WireFrame frame);
  void handle_goodbye(Session& session);
  bool fetch(Session& session, Event& event, Block& data);
  /// Applies, copies to the replica, wakes who has waited. Returns an error text, or nothing.
  std::string apply(Hosted& host, const Event& event, Block data, Answer& answer);
  void reply(Hosted& host, Hosted::HeldAnswer answer);
  void send(const Hosted::HeldAnswer& answer);
  void wake(Hosted& host);
  bool try_answer(Hosted& host, const Hosted::Waiting& waiting);
  void lose_worker(Hosted& host, uint32_t worker);

  // server_replica.cpp
  void handle_replica_frame(Session& session, WireFrame frame);
  void handle_ask(Session& session, const WireFrame& frame);
  void handle_call(CallResult result);
  void dial(Hosted& host);
  void attach_replica(Hosted& host, Socket socket);
  void send_state(Hosted& host);
  void release_held(Hosted& host);
  void promote(Hosted& host, const std::string& why);
  /// Two believe to be primary: one of them steps down.
  void settle(Hosted& host, const Standing& other);
  void step_down(Hosted& host);
  void go_on_alone(Hosted& host, const std::string& why);
  void partner_lost(Hosted& host);
  void tick_replicas(Clock::time_point now);
  int partner_of(const Hosted& host) const;
  Standing standing_of(const Hosted& host) const;
  std::string name_of_server(int server) const;

  const ServerOptions options_;
  const std::vector<SocketAddress> addresses_;
  uint64_t instance_ = 0;
  control::Poller poller_;
  Dialer dialer_;
  std::optional<control::Gate> gate_;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;
  std::unordered_map<int, uint64_t> session_of_fd_;
  uint64_t num_sessions_ = 0;
  std::vector<Hosted> hosted_;
  Clock::time_point next_tick_{};
  bool heard_goodbye_ = false;
  std::atomic<bool> stopping_{false}, done_{false};

  mutable std::mutex stats_mutex_;
  ServerStats stats_, shown_;
  uint64_t closed_bytes_in_ = 0, closed_bytes_out_ = 0;
};

}  // namespace trireme::server
