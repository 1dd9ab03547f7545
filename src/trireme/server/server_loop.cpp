#include "trireme/server/server_loop.h"

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/log.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;

}  // namespace

ServerLoop::ServerLoop(const ServerOptions& options, Socket listener, std::vector<SocketAddress> addresses)
    : options_(options), addresses_(std::move(addresses)), dialer_(poller_, options.credentials) {
  fill_random(std::as_writable_bytes(std::span(&instance_, 1)));
  const auto judge = [this](const control::Hello& hello) -> std::optional<control::Refusal> {
    const bool known = hello.channel == kWorkerChannel || hello.channel == kReplicaChannel;
    if (hello.purpose != control::Purpose::kData || !known || hosted(static_cast<int>(hello.target)) == nullptr) {
      return control::Refusal{control::RefusalCode::kWrongPeer,
                              fmt::format("server {} has no shard {}", options_.index, hello.target)};
    }
    return std::nullopt;
  };
  hosted_.emplace_back().shard = options.index;
  hosted_.back().role = options.replicate ? Role::kEmpty : Role::kPrimary;
  hosted_.back().solo = !options.replicate;
  if (options.replicate) {
    hosted_.emplace_back().shard = (options.index + options.num_servers - 1) % options.num_servers;
    hosted_.back().next_dial = Clock::time_point::max();  // whoever is primary there comes to us
  }
  gate_.emplace(poller_, std::move(listener), options.credentials, judge,
                [this](Socket socket, const control::Hello& hello) { admit(std::move(socket), hello); });
}

void ServerLoop::stop() {
  stopping_ = true;
  poller_.ring();
}

void ServerLoop::hang_up() {
  sessions_.clear();
  session_of_fd_.clear();
  gate_.reset();
}

Session* ServerLoop::find(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() || found->second->closing ? nullptr : found->second.get();
}

Hosted* ServerLoop::hosted(int shard) {
  for (Hosted& host : hosted_) {
    if (host.shard == shard) return &host;
  }
  return nullptr;
}

void ServerLoop::admit(Socket socket, const control::Hello& hello) {
  Session& session = open_session(std::move(socket), static_cast<int>(hello.target), hello.rank);
  session.is_replica = hello.channel == kReplicaChannel;
}

Session& ServerLoop::open_session(Socket socket, int shard, uint32_t peer) {
  auto session = std::make_unique<Session>(poller_, std::move(socket), ++num_sessions_);
  session->shard = shard;
  session->worker = peer;
  session_of_fd_[session->channel.fd()] = session->id;
  return *(sessions_[session->id] = std::move(session));
}

void ServerLoop::run() {
  while (!stopping_) {
    const auto now = Clock::now();
    const auto next = std::min({next_tick_, gate_->next_tick(), now + kTick});
    const int timeout =
        static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(next - now).count()));
    const auto events = poller_.wait(timeout);
    const auto start = Clock::now();
    for (const epoll_event& event : events) {
      if (gate_->handle(event.data.fd)) continue;
      const auto found = session_of_fd_.find(event.data.fd);
      Session* session = found == session_of_fd_.end() ? nullptr : find(found->second);
      if (session == nullptr) continue;
      if (event.events & EPOLLOUT) session->channel.flush();
      if (event.events & ~static_cast<uint32_t>(EPOLLOUT)) handle(*session);
    }
    for (CallResult& result : dialer_.take()) handle_call(std::move(result));
    gate_->tick(start);
    if (start >= next_tick_) {
      tick();
      next_tick_ = start + kTick;
    }
    sweep();
    stats_.busy_ns += nanoseconds(Clock::now() - start);
    publish_stats();
  }
}

void ServerLoop::handle(Session& session) {
  std::vector<WireFrame> frames;
  const bool lives = session.channel.receive(frames);
  for (WireFrame& frame : frames) {
    if (session.closing || session.finishing) break;
    const uint64_t request = frame.request;
    try {
      handle_frame(session, std::move(frame));
    } catch (const control::ProtocolError& error) {
      log_warn("server {}: dropped a connection of {} {}: {}", options_.index, session.is_replica ? "server" : "worker",
               session.worker, error.what());
      session.closing = true;
    } catch (const std::exception& error) {  // a settings clash, a bad state, no memory: the peer is told
      session.channel.send(Type::kError, request, encode_text(error.what()));
      session.finishing = true;
    }
  }
  if (session.event_ack > 0 && !session.closing) {
    session.channel.send(Type::kEventAck, std::exchange(session.event_ack, 0), {});
  }
  if (!lives) session.closing = true;
}

void ServerLoop::handle_frame(Session& session, WireFrame frame) {
  if (session.is_replica) return handle_replica_frame(session, std::move(frame));
  switch (frame.type) {
    case Type::kJoin:
      return handle_join(session, frame);
    case Type::kInit:
    case Type::kPush:
    case Type::kFinish:
    case Type::kCommit:
      return handle_event(session, std::move(frame));
    case Type::kPull:
    case Type::kSquares:
      return handle_query(session, std::move(frame));
    case Type::kGoodbye:
      return handle_goodbye(session);
    case Type::kPulse:
      return;
    default:
      throw control::ProtocolError("a frame that no worker sends");
  }
}

void ServerLoop::tick() {
  const auto now = Clock::now();
  for (auto& [id, session] : sessions_) {
    if (session->closing) continue;
    // What is queued says as much, and one who never reads must not fill the memory.
    if (session->channel.drained()) session->channel.send(Type::kPulse, 0, {});
    const auto patience = session->is_replica ? options_.silence : options_.worker_silence;
    if (now - session->channel.heard() > patience) {
      log_warn("server {}: {} {} has said nothing for {} ms", options_.index, session->is_replica ? "server" : "worker",
               session->worker, std::chrono::duration_cast<std::chrono::milliseconds>(patience).count());
      session->closing = true;
    }
  }
  for (Hosted& host : hosted_) {
    for (auto at = host.gone.begin(); at != host.gone.end();) {
      if (at->second > now) {
        ++at;
        continue;
      }
      const uint32_t worker = at->first;
      at = host.gone.erase(at);
      if (host.role == Role::kPrimary) lose_worker(host, worker);
    }
    for (auto& [piece, waiting] : host.waiting) {
      Session* session = find(waiting.session);
      if (session == nullptr || waiting.note_at > now) continue;
      waiting.note_at = now + 5 * kTick;
      session->channel.send(Type::kNote, waiting.request, encode_text(host.state->blocked_by(waiting.query)));
    }
  }
  tick_replicas(now);
  bool done = false;
  for (const Hosted& host : hosted_) {
    if (host.role != Role::kPrimary) continue;
    bool all_left = host.state != nullptr;
    for (int w = 0; all_left && w < host.state->settings().num_workers; ++w) {
      all_left = host.state->presence(static_cast<uint32_t>(w)) == Presence::kLeft;
    }
    done = all_left;
    if (!done) break;
  }
  if (done && heard_goodbye_) done_ = true;
}

void ServerLoop::sweep() {
  std::vector<uint64_t> ended;
  for (auto& [id, session] : sessions_) {
    if (session->finishing && session->channel.drained()) session->closing = true;
    if (session->closing) ended.push_back(id);
  }
  for (const uint64_t id : ended) close_session(id);
}

void ServerLoop::close_session(uint64_t id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  const std::unique_ptr<Session> session = std::move(found->second);
  sessions_.erase(found);
  session_of_fd_.erase(session->channel.fd());
  closed_bytes_in_ += session->channel.bytes_in();
  closed_bytes_out_ += session->channel.bytes_out();
  Hosted& host = *hosted(session->shard);
  std::erase_if(host.waiting, [id](const auto& entry) { return entry.second.session == id; });
  if (session->is_replica) {
    const bool was_partner = host.replica == id || host.source == id;
    if (host.replica == id) host.replica = 0;
    if (host.source == id) host.source = 0;
    if (was_partner) partner_lost(host);
    return;
  }
  const auto current = host.session_of_worker.find(session->worker);
  if (!session->joined || current == host.session_of_worker.end() || current->second != id) return;
  host.session_of_worker.erase(current);
  if (!session->said_goodbye) host.gone[session->worker] = Clock::now() + options_.worker_grace;
}

void ServerLoop::publish_stats() {
  ServerStats now = stats_;
  now.bytes_in = closed_bytes_in_;
  now.bytes_out = closed_bytes_out_;
  for (const auto& [id, session] : sessions_) {
    now.bytes_in += session->channel.bytes_in();
    now.bytes_out += session->channel.bytes_out();
  }
  for (const Hosted& host : hosted_) {
    if (host.role != Role::kPrimary) continue;
    ++now.num_primary;
    now.num_replicated += host.replica != 0 && host.has_all;
    if (!host.state) continue;
    const ShardStats& shard = host.state->stats();
    now.shards.num_pushes += shard.num_pushes;
    now.shards.num_dropped += shard.num_dropped;
    now.shards.num_updates += shard.num_updates;
    now.shards.num_pulls += shard.num_pulls;
    now.shards.largest_lead = std::max(now.shards.largest_lead, shard.largest_lead);
    now.shards.largest_staleness = std::max(now.shards.largest_staleness, shard.largest_staleness);
    now.shards.sum_of_staleness += shard.sum_of_staleness;
  }
  const std::lock_guard lock(stats_mutex_);
  shown_ = now;
}

ServerStats ServerLoop::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return shown_;
}

}  // namespace trireme::server
