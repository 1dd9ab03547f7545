// One rank's end of all its links in a group: frames messages, matches them with receives, moves the bytes.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "trireme/comm/host/address_space.h"
#include "trireme/comm/host/board.h"
#include "trireme/comm/host/waiter.h"
#include "trireme/comm/transport/frame.h"
#include "trireme/comm/transport/link.h"
#include "trireme/comm/transport/traffic.h"

namespace trireme {

/// Thread-safe. There is no thread behind it: whoever waits moves everybody's bytes. Messages between two ranks in one
/// (lane, tag) are matched in order; a message that nobody has asked for yet is kept aside when another behind it is
/// wanted, otherwise it stays in the link and holds its sender back.
class Endpoint {
 public:
  struct Request {
    int peer = 0;
    bool is_send = false;
    FrameHeader header;
    ConstBytes out;
    Bytes in;
    uint32_t peer_round = 0;
    std::atomic<bool> done{false};
  };
  using Ticket = std::shared_ptr<Request>;

  using LinkMaker = std::function<std::unique_ptr<Link>(int peer)>;
  /// `mailbox` is null when no peer is on this host. `world_ranks`, by member, are for errors; empty: the same numbers.
  /// `on_one_machine`: all members run on this one, so that what is under way lies in its caches.
  Endpoint(int rank, int size, LinkMaker make_link, Mailbox* mailbox, std::vector<int> world_ranks = {},
           bool on_one_machine = true);

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool on_one_machine() const { return on_one_machine_; }

  /// The memory must stay until the ticket is done. The header's length and round are filled in.
  Ticket start_send(int peer, FrameHeader header, ConstBytes data);
  Ticket start_recv(int peer, FrameHeader header, Bytes data);

  /// Returns when all tickets are done. Throws OperationMismatch, LinkBroken, WaitTimedOut or JobFailed.
  void wait(std::span<const Ticket> tickets, const Waiter& waiter);
  /// Moves what can be moved now.
  bool progress();
  /// Moves bytes, or sleeps until some arrive, at most a few milliseconds.
  void progress_or_sleep();
  bool idle() const { return active_count_.load(std::memory_order_relaxed) == 0; }

  /// Forgets all requests under way: their memory may go. For broken communicators.
  void abandon();

  /// The peers whose messages are waited for.
  std::vector<int> awaited() const;

  Traffic traffic() const;
  uint32_t round() const { return round_.load(std::memory_order_relaxed); }
  /// A round has ended in which these were waited for together.
  void end_round(std::span<const Ticket> tickets);

 private:
  struct Unexpected {
    FrameHeader header;
    std::vector<std::byte> data;  // grows as bytes arrive: the header's length is only a claim
    bool complete = false;
    Ticket taker;  // asked for after all, but the link is writing here already
  };
  struct Peer {
    std::unique_ptr<Link> link;
    std::deque<Ticket> sends;
    size_t send_moved = 0;  // of header and payload of the first send
    std::deque<Ticket> recvs;
    FrameHeader incoming;
    size_t header_moved = 0, payload_moved = 0;
    Ticket target;                      // where the payload under way goes,
    std::shared_ptr<Unexpected> aside;  // or this
    std::deque<std::shared_ptr<Unexpected>> unexpected;
    bool listed = false;
  };

  Peer& peer(int index);
  void activate(int index);
  bool progress_locked();
  bool move_out(Peer& peer);
  bool move_in(int index, Peer& peer);
  static size_t read_header(Peer& peer);
  void look_around(const FrameHeader& mine);
  void begin_payload(int index, Peer& peer);
  void end_payload(Peer& peer);
  static void check_match(int index, const FrameHeader& theirs, const FrameHeader& mine);
  static void check_same_operation(int index, const FrameHeader& theirs, const FrameHeader& mine);
  static bool same_lane(const FrameHeader& a, const FrameHeader& b) { return a.lane == b.lane && a.tag == b.tag; }
  void sleep_for_event();

  const int rank_, size_;
  const std::vector<int> world_ranks_;
  const bool on_one_machine_;
  LinkMaker make_link_;
  Mailbox* mailbox_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<int> active_;  // peers with something under way
  std::atomic<size_t> active_count_{0};
  std::atomic<bool> polls_sockets_{false};  // some peers are reached over sockets
  Traffic traffic_;
  std::atomic<uint32_t> round_{0};
};

}  // namespace trireme
