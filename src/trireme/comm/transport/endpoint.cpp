#include "trireme/comm/transport/endpoint.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

constexpr size_t kFirstPiece = 64 * 1024;  // of memory for a message that nobody has asked for
constexpr auto kLookAroundAfter = std::chrono::milliseconds(200);
constexpr int kMostToLookAt = 128;  // beyond, it is not worth a link to every peer

}  // namespace

Endpoint::Endpoint(int rank, int size, LinkMaker make_link, Mailbox* mailbox, std::vector<int> world_ranks,
                   bool on_one_machine)
    : rank_(rank),
      size_(size),
      world_ranks_(std::move(world_ranks)),
      on_one_machine_(on_one_machine),
      make_link_(std::move(make_link)),
      mailbox_(mailbox),
      peers_(static_cast<size_t>(size)) {}

Endpoint::Peer& Endpoint::peer(int index) {
  auto& slot = peers_[static_cast<size_t>(index)];
  if (!slot) slot = std::make_unique<Peer>();
  if (!slot->link) slot->link = make_link_(index);
  return *slot;
}

void Endpoint::activate(int index) {
  Peer& p = peer(index);
  if (p.listed) return;
  p.listed = true;
  active_.push_back(index);
  active_count_.store(active_.size(), std::memory_order_relaxed);
}

Endpoint::Ticket Endpoint::start_send(int to, FrameHeader header, ConstBytes data) {
  auto ticket = std::make_shared<Request>();
  ticket->peer = to;
  ticket->is_send = true;
  ticket->header = header;
  ticket->header.length = data.size();
  ticket->header.round = round();
  ticket->out = data;
  std::lock_guard lock(mutex_);
  Peer& p = peer(to);
  p.sends.push_back(ticket);
  traffic_.messages_sent += 1;
  traffic_.bytes_sent += data.size();
  if (p.sends.size() == 1) move_out(p);
  if (!p.sends.empty()) activate(to);
  return ticket;
}

Endpoint::Ticket Endpoint::start_recv(int from, FrameHeader header, Bytes data) {
  auto ticket = std::make_shared<Request>();
  ticket->peer = from;
  ticket->header = header;
  ticket->header.length = data.size();
  ticket->in = data;
  std::lock_guard lock(mutex_);
  Peer& p = peer(from);
  const bool first_of_lane = std::none_of(
      p.recvs.begin(), p.recvs.end(), [&](const Ticket& other) { return same_lane(other->header, ticket->header); });
  for (const auto& message : p.unexpected) check_same_operation(from, message->header, header);
  if (first_of_lane) {
    const auto kept = std::find_if(p.unexpected.begin(), p.unexpected.end(),
                                   [&](const auto& message) { return same_lane(message->header, ticket->header); });
    if (kept != p.unexpected.end()) {
      check_match(from, (*kept)->header, ticket->header);
      if ((*kept)->complete) {
        std::copy((*kept)->data.begin(), (*kept)->data.end(), data.begin());
        ticket->peer_round = (*kept)->header.round;
        p.unexpected.erase(kept);
        ticket->done.store(true, std::memory_order_release);
        return ticket;
      }
      // Its payload is arriving right now.
      if (p.link->keeps_messages()) {
        (*kept)->taker = ticket;
        p.unexpected.erase(kept);
        activate(from);
        return ticket;
      }
      // The part that has come is copied, the rest goes straight to its place.
      std::copy_n((*kept)->data.begin(), p.payload_moved, data.begin());
      p.aside = nullptr;
      p.unexpected.erase(kept);
      p.target = ticket;
      activate(from);
      return ticket;
    }
  }
  p.recvs.push_back(ticket);
  activate(from);
  return ticket;
}

void Endpoint::check_match(int index, const FrameHeader& theirs, const FrameHeader& mine) {
  if (theirs.fingerprint != mine.fingerprint || theirs.length != mine.length || theirs.generation != mine.generation)
    throw OperationMismatch{index, theirs.digest, mine.digest};
}

// Messages of one collective may be in several lanes, and an algorithm that uses other lanes would never meet them. All
// that a peer sends in a collective is received in it, so nothing of an earlier one can be left.
void Endpoint::check_same_operation(int index, const FrameHeader& theirs, const FrameHeader& mine) {
  const uint64_t their_number = theirs.digest.sequence, my_number = mine.digest.sequence;
  if (their_number == 0 || my_number == 0) return;  // point to point has no number
  if (their_number < my_number || (their_number == my_number && theirs.fingerprint != mine.fingerprint))
    throw OperationMismatch{index, theirs.digest, mine.digest};
}

bool Endpoint::move_out(Peer& p) {
  bool moved = false;
  while (!p.sends.empty()) {
    Request& request = *p.sends.front();
    const ConstBytes header = std::as_bytes(std::span(&request.header, 1));
    const size_t total = header.size() + request.out.size();
    const ConstBytes header_left = header.subspan(std::min(p.send_moved, header.size()));
    const size_t payload_moved = p.send_moved - std::min(p.send_moved, header.size());
    const size_t n = p.link->write_frame(header_left, request.out.subspan(payload_moved));
    if (n == 0) break;
    moved = true;
    p.send_moved += n;
    if (p.send_moved < total) continue;
    p.send_moved = 0;
    request.done.store(true, std::memory_order_release);
    p.sends.pop_front();
  }
  return moved;
}

void Endpoint::begin_payload(int index, Peer& p) {
  const FrameHeader& header = p.incoming;
  if (header.magic != FrameHeader::kMagic || header.version != FrameHeader::kVersion ||
      header.length > FrameHeader::kMaxLength) {
    throw LinkBroken{world_ranks_.empty() ? index : world_ranks_[static_cast<size_t>(index)],
                     fmt::format("it sent a frame of another kind (magic {:08x}, version {}, length {})", header.magic,
                                 header.version, header.length)};
  }
  const auto wanted = std::find_if(p.recvs.begin(), p.recvs.end(),
                                   [&](const Ticket& ticket) { return same_lane(ticket->header, header); });
  if (wanted != p.recvs.end()) {
    check_match(index, header, (*wanted)->header);
    p.target = *wanted;
    p.recvs.erase(wanted);
  } else {
    for (const Ticket& ticket : p.recvs) check_same_operation(index, header, ticket->header);
    p.aside = std::make_shared<Unexpected>();
    p.aside->header = header;
    if (p.link->keeps_messages()) p.aside->data.resize(header.length);
    p.unexpected.push_back(p.aside);
  }
}

void Endpoint::end_payload(Peer& p) {
  traffic_.messages_received += 1;
  traffic_.bytes_received += p.incoming.length;
  if (p.target) {
    p.target->peer_round = p.incoming.round;
    p.target->done.store(true, std::memory_order_release);
  } else if (const Ticket& taker = p.aside->taker) {
    std::copy(p.aside->data.begin(), p.aside->data.end(), taker->in.begin());
    taker->peer_round = p.incoming.round;
    taker->done.store(true, std::memory_order_release);
  } else {
    p.aside->complete = true;
  }
  p.target = nullptr;
  p.aside = nullptr;
  p.header_moved = p.payload_moved = 0;
}

size_t Endpoint::read_header(Peer& p) {
  if (p.header_moved == sizeof p.incoming) return 0;
  const size_t n = p.link->read_some(std::as_writable_bytes(std::span(&p.incoming, 1)).subspan(p.header_moved));
  p.header_moved += n;
  return n;
}

// A rank that means another operation may be sending to this one, which does not listen: it waits for somebody else.
void Endpoint::look_around(const FrameHeader& mine) {
  if (mine.digest.sequence == 0 || size_ > kMostToLookAt) return;
  std::lock_guard lock(mutex_);
  for (int index = 0; index < size_; ++index) {
    if (index == rank_) continue;
    Peer& p = peer(index);
    if (p.target || p.aside || !p.recvs.empty()) continue;
    read_header(p);
    if (p.header_moved == sizeof p.incoming) check_same_operation(index, p.incoming, mine);
  }
}

bool Endpoint::move_in(int index, Peer& p) {
  bool moved = false;
  while (p.target || p.aside || !p.recvs.empty()) {
    if (!p.target && !p.aside) {
      const size_t n = read_header(p);
      moved = moved || n > 0;
      if (p.header_moved < sizeof p.incoming) {
        if (n == 0) break;
        continue;
      }
      begin_payload(index, p);
    }
    const size_t length = p.incoming.length;
    if (p.payload_moved < length) {
      if (p.aside && p.aside->data.size() == p.payload_moved) {
        p.aside->data.resize(std::min(length, std::max(2 * p.payload_moved, kFirstPiece)));
      }
      const Bytes payload = p.target ? p.target->in : Bytes(p.aside->data);
      const size_t n = p.link->read_some(payload.subspan(p.payload_moved));
      if (n == 0) break;
      moved = true;
      p.payload_moved += n;
    }
    if (p.payload_moved == length) end_payload(p);
  }
  return moved;
}

bool Endpoint::progress_locked() {
  bool moved = false;
  for (size_t i = 0; i < active_.size();) {
    const int index = active_[i];
    Peer& p = *peers_[static_cast<size_t>(index)];
    if (!p.sends.empty()) moved |= move_out(p);
    moved |= move_in(index, p);
    if (p.sends.empty() && p.recvs.empty() && !p.target && !p.aside) {
      p.listed = false;
      active_[i] = active_.back();
      active_.pop_back();
      active_count_.store(active_.size(), std::memory_order_relaxed);
    } else {
      ++i;
    }
  }
  return moved;
}

bool Endpoint::progress() {
  std::lock_guard lock(mutex_);
  return progress_locked();
}

void Endpoint::wait(std::span<const Ticket> tickets, const Waiter& waiter) {
  const auto all_done = [&] {
    return std::all_of(tickets.begin(), tickets.end(),
                       [](const Ticket& ticket) { return ticket->done.load(std::memory_order_acquire); });
  };
  // A look at a socket is a system call, so there is less to gain from looking often: the kernel wakes this thread.
  const int spins = polls_sockets_ ? waiter.spins() / 8 : waiter.spins();
  const int yields = polls_sockets_ ? 0 : waiter.yields();
  int idle = 0;
  Clock::time_point quiet_since{};
  while (!all_done()) {
    if (progress()) {
      idle = 0;
      quiet_since = {};
    } else if (idle < spins) {
      ++idle;
      pause_cpu();
    } else if (idle < spins + yields) {
      ++idle;
      yield_core();
    } else {
      waiter.check_thoroughly();
      const Clock::time_point now = Clock::now();
      if (quiet_since == Clock::time_point{}) quiet_since = now;
      if (now - quiet_since > kLookAroundAfter) {
        look_around(tickets.front()->header);
        quiet_since = now;
      }
      if (!all_done()) sleep_for_event();
    }
    if (idle >= spins ? idle % 16 == 15 : idle % 64 == 63) waiter.check();
  }
}

void Endpoint::progress_or_sleep() {
  if (!progress()) sleep_for_event();
}

void Endpoint::sleep_for_event() {
  std::vector<pollfd> fds;
  bool all_polled = true;
  {
    std::lock_guard lock(mutex_);
    for (const int index : active_) {
      const Peer& p = *peers_[static_cast<size_t>(index)];
      const bool reads = p.target || p.aside || !p.recvs.empty();
      const int in = reads ? p.link->read_fd() : -1;
      const int out = p.sends.empty() ? -1 : p.link->write_fd();
      if ((reads && in < 0) || (!p.sends.empty() && out < 0)) all_polled = false;
      polls_sockets_ = polls_sockets_ || in >= 0 || out >= 0;
      if (in >= 0) {
        p.link->expect(p.target || p.aside ? p.incoming.length - p.payload_moved : sizeof p.incoming - p.header_moved);
        fds.push_back({in, POLLIN, 0});
      }
      if (out >= 0) fds.push_back({out, POLLOUT, 0});
    }
  }
  if (!fds.empty()) {
    poll(fds.data(), fds.size(), all_polled ? 20 : 1);
  } else if (mailbox_ != nullptr) {
    mailbox_->sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = mailbox_->bell.load(std::memory_order_seq_cst);
    bool moved = false;
    try {
      moved = progress();
    } catch (...) {
      mailbox_->sleepers.fetch_sub(1, std::memory_order_relaxed);
      throw;
    }
    if (!moved) sleep_on(mailbox_->bell, seen, 5);
    mailbox_->sleepers.fetch_sub(1, std::memory_order_relaxed);
  } else {
    usleep(50);
  }
}

void Endpoint::abandon() {
  std::lock_guard lock(mutex_);
  for (auto& p : peers_) {
    if (!p) continue;
    p->sends.clear();
    p->recvs.clear();
    if (p->link && p->link->keeps_messages()) p->link.reset();  // it may still be writing to the memory of a request
    p->target = nullptr;
    p->aside = nullptr;
    p->listed = false;
  }
  active_.clear();
  active_count_.store(0, std::memory_order_relaxed);
}

std::vector<int> Endpoint::awaited() const {
  std::lock_guard lock(mutex_);
  std::vector<int> peers;
  for (const int index : active_) {
    const Peer& p = *peers_[static_cast<size_t>(index)];
    if (p.target || !p.recvs.empty()) peers.push_back(index);
  }
  return peers;
}

Traffic Endpoint::traffic() const {
  std::lock_guard lock(mutex_);
  Traffic traffic = traffic_;
  traffic.rounds = round();
  return traffic;
}

void Endpoint::end_round(std::span<const Ticket> tickets) {
  uint32_t latest = round();
  for (const Ticket& ticket : tickets) latest = std::max(latest, ticket->peer_round);
  round_.store(latest + 1, std::memory_order_relaxed);
}

}  // namespace trireme
