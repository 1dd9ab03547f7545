// What a server does for its workers: joining, events, queries and their answers.
#include <fmt/format.h>

#include <cstring>

#include "trireme/base/fault.h"
#include "trireme/base/log.h"
#include "trireme/server/server_loop.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kNoteAfter = 300ms;

}  // namespace

void ServerLoop::handle_join(Session& session, const WireFrame& frame) {
  JoinRequest join = decode_join(frame.meta);
  Hosted& host = *hosted(session.shard);
  const auto refuse = [&](Type type, const std::string& text) {
    session.channel.send(type, frame.request, encode_text(text));
    session.finishing = true;
  };
  if (session.joined || join.event.worker != session.worker) throw control::ProtocolError("a worker that joins twice");
  if (host.role != Role::kPrimary) {
    return refuse(Type::kNotPrimary,
                  fmt::format("{} is not primary of shard {} now", name_of_server(options_.index), session.shard));
  }
  if (join.settings.replicate != options_.replicate || join.num_servers != options_.num_servers) {
    return refuse(Type::kError,
                  fmt::format("worker {} expects {} servers {} replication, this is one of {} {}", session.worker,
                              join.num_servers, join.settings.replicate ? "with" : "without", options_.num_servers,
                              options_.replicate ? "with" : "without"));
  }
  if (!host.state) {
    uint64_t lineage = 0;
    fill_random(std::as_writable_bytes(std::span(&lineage, 1)));
    host.state = std::make_unique<Shard>(host.shard, join.num_servers, join.settings, join.keys, options_.codecs,
                                         lineage);  // throws what is told to the worker
    send_state(host);
  }
  if (join.settings != host.state->settings() || join.keys != host.state->table().keys()) {
    return refuse(Type::kError,
                  fmt::format("worker {} comes with other keys or settings than the workers before", session.worker));
  }
  if (const auto before = host.session_of_worker.find(session.worker); before != host.session_of_worker.end()) {
    Session* other = find(before->second);
    if (other != nullptr && other->incarnation != join.event.incarnation) {
      // Perhaps its predecessor is dead and the end of that connection is on its way: it may ask again.
      return refuse(Type::kNotPrimary, fmt::format("worker {} is already there", session.worker));
    }
    if (other != nullptr) other->closing = true;
  }
  Answer answer;
  if (const std::string error = apply(host, join.event, {}, answer); !error.empty()) {
    return refuse(Type::kError, error);
  }
  session.joined = true;
  session.incarnation = join.event.incarnation;
  host.session_of_worker[session.worker] = session.id;
  host.gone.erase(session.worker);
  // Its ticket means something on the worker's host only.
  if (peer_address(session.channel.socket()).host == local_address(session.channel.socket()).host) {
    session.area = HostSharedArea::open(join.ticket);
  }
  Joined joined;
  joined.lineage = host.state->lineage();
  joined.last_sequence = host.state->last_sequence(session.worker);
  joined.clock = host.state->clock_for(session.worker);
  joined.shares_memory = session.area.valid();
  reply(host, {host.log, session.id, Type::kJoined, frame.request, encode(joined), {}, 0});
}

bool ServerLoop::fetch(Session& session, Event& event, Block& data) {
  if (event.slot == kNoSlot) return true;
  const auto from = session.area.slot(HostSharedArea::Side::kWorker, event.slot, event.slot_bytes);
  if (from.size() != event.slot_bytes || !data.empty()) return false;
  data = Block::copy_of(from);
  session.area.release(HostSharedArea::Side::kWorker, event.slot);
  event.slot = kNoSlot;
  event.slot_bytes = 0;
  return true;
}

void ServerLoop::handle_event(Session& session, WireFrame frame) {
  Event event = decode_event(frame.type, frame.meta);
  if (!session.joined || event.worker != session.worker) throw control::ProtocolError("an event of another worker");
  Hosted& host = *hosted(session.shard);
  const auto start = Clock::now();
  if (!fetch(session, event, frame.data)) throw control::ProtocolError("a slot that does not exist");
  fault_point("server.before_apply");
  Answer answer;
  const std::string error = apply(host, event, std::move(frame.data), answer);
  answer.service_ns = nanoseconds(Clock::now() - start);
  if (error.empty()) {
    reply(host, {host.log, session.id, Type::kAck, frame.request, encode(answer), {}, 0});
  } else {
    reply(host, {host.log, session.id, Type::kError, frame.request, encode_text(error), {}, 0});
  }
}

std::string ServerLoop::apply(Hosted& host, const Event& event, Block data, Answer& answer) {
  Session* replica = find(host.replica);
  ++host.log;
  if (replica != nullptr) {
    std::vector<Block> copy;
    if (!data.empty()) copy.push_back(data);
    replica->channel.send(event.type, host.log, encode(event), std::move(copy));
  }
  std::string problem;
  try {
    answer.dropped = host.state->apply(event, std::move(data)) == Shard::Outcome::kDropped;
  } catch (const std::exception& error) {  // a codec of the caller's may throw anything
    problem = error.what();
  }
  wake(host);
  return problem;
}

void ServerLoop::handle_query(Session& session, WireFrame frame) {
  Query query = decode_query(frame.type, frame.meta);
  if (!session.joined || query.worker != session.worker) throw control::ProtocolError("a query of another worker");
  Hosted& host = *hosted(session.shard);
  if (query.type != Type::kPull) query.piece = kAnyPiece;
  Hosted::Waiting waiting{session.id, frame.request, query, std::move(frame.data), Clock::now() + kNoteAfter};
  if (try_answer(host, waiting)) return;
  host.waiting.emplace(query.piece, std::move(waiting));
  stats_.most_waiting = std::max<uint64_t>(stats_.most_waiting, host.waiting.size());
}

bool ServerLoop::try_answer(Hosted& host, const Hosted::Waiting& waiting) {
  try {
    if (host.state->ready(waiting.query, waiting.rows) == Shard::Readiness::kWaits) return false;
    Block data = host.state->answer(waiting.query, waiting.rows);
    reply(host, {host.log, waiting.session, Type::kData, waiting.request, {}, std::move(data), waiting.query.priority});
  } catch (const std::exception& error) {  // no memory is a matter of this query, too, whoever has woken it
    reply(host, {host.log, waiting.session, Type::kError, waiting.request, encode_text(error.what()), {}, 0});
  }
  return true;
}

void ServerLoop::wake(Hosted& host) {
  if (!host.state) return;
  const Shard::Changes changes = host.state->take_changes();
  const auto try_range = [&](auto begin, auto end) {
    while (begin != end) begin = try_answer(host, begin->second) ? host.waiting.erase(begin) : std::next(begin);
  };
  if (changes.others) return try_range(host.waiting.begin(), host.waiting.end());
  for (const uint32_t piece : changes.pieces) {
    const auto range = host.waiting.equal_range(piece);
    try_range(range.first, range.second);
  }
}

void ServerLoop::reply(Hosted& host, Hosted::HeldAnswer answer) {
  if (host.solo || answer.log <= host.acked) return send(answer);
  host.held.push_back(std::move(answer));
}

void ServerLoop::send(const Hosted::HeldAnswer& held) {
  Session* session = find(held.session);
  if (session == nullptr) return;
  if (held.type != Type::kData) return session->channel.send(held.type, held.request, held.meta, {}, held.priority);
  Answer answer;
  const size_t bytes = held.data.num_bytes();
  if (const auto slot = session->area.take(HostSharedArea::Side::kServer, bytes)) {
    std::memcpy(session->area.slot(HostSharedArea::Side::kServer, *slot, bytes).data(), held.data.data(), bytes);
    answer.slot = *slot;
    answer.slot_bytes = static_cast<uint32_t>(bytes);
    return session->channel.send(Type::kData, held.request, encode(answer), {}, held.priority);
  }
  session->channel.send(Type::kData, held.request, encode(answer), {held.data}, held.priority);
}

void ServerLoop::handle_goodbye(Session& session) {
  if (!session.joined) throw control::ProtocolError("a goodbye without a hello");
  session.said_goodbye = session.finishing = heard_goodbye_ = true;
  lose_worker(*hosted(session.shard), session.worker);
}

void ServerLoop::lose_worker(Hosted& host, uint32_t worker) {
  if (!host.state || host.state->presence(worker) == Presence::kLeft) return;
  Session* session = nullptr;
  if (const auto found = host.session_of_worker.find(worker); found != host.session_of_worker.end()) {
    session = find(found->second);
  }
  if (session == nullptr || !session->said_goodbye) {
    ++stats_.num_workers_lost;
    log_warn("server {}: worker {} is gone: shard {} goes on without it", options_.index, worker, host.shard);
  }
  Event event;
  event.type = Type::kLeave;
  event.worker = worker;
  Answer answer;
  apply(host, event, {}, answer);
}

}  // namespace trireme::server
