// The other server of a shard: who is primary, copying the state and the events. See [Note: Replication].
#include <fmt/format.h>

#include "trireme/base/fault.h"
#include "trireme/base/log.h"
#include "trireme/server/server_loop.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kDialPause = 100ms;
constexpr auto kReconnectTime = 5s;  // for workers to find a server that has taken over

}  // namespace

int ServerLoop::partner_of(const Hosted& host) const {
  return host.shard == options_.index ? (host.shard + 1) % options_.num_servers : host.shard;
}

std::string ServerLoop::name_of_server(int server) const {
  return fmt::format("server {} at {}", server, to_string(addresses_[static_cast<size_t>(server)]));
}

Standing ServerLoop::standing_of(const Hosted& host) const { return {instance_, host.role, host.epoch}; }

void ServerLoop::tick_replicas(Clock::time_point now) {
  if (!options_.replicate) return;
  for (Hosted& host : hosted_) {
    const bool linked = host.replica != 0 || host.source != 0;
    if (!linked && !host.dialing && now >= host.next_dial) dial(host);
  }
}

void ServerLoop::dial(Hosted& host) {
  Call call;
  call.number = host.shard;
  call.address = addresses_[static_cast<size_t>(partner_of(host))];
  call.hello.purpose = control::Purpose::kData;
  call.hello.channel = kReplicaChannel;
  call.hello.rank = static_cast<uint32_t>(options_.index);
  call.hello.size = static_cast<uint32_t>(options_.num_servers);
  call.hello.target = static_cast<uint32_t>(host.shard);
  call.type = Type::kAsk;
  call.meta = encode(standing_of(host));
  call.patience = options_.silence;
  host.dialing = true;
  dialer_.start(std::move(call));
}

void ServerLoop::handle_call(CallResult result) {
  Hosted& host = *hosted(result.number);
  host.dialing = false;
  host.next_dial = Clock::now() + kDialPause;
  const bool answered = result.socket.valid() && result.answer.type == Type::kTell;
  if (!answered) {
    const bool gone = result.refused_at_once || Clock::now() - host.lost_at > options_.silence;
    if (host.role == Role::kPrimary && !host.solo && gone) go_on_alone(host, result.reason);
    if (host.role == Role::kBackup && host.source == 0 && gone) promote(host, result.reason);
    return;
  }
  Standing other;
  try {
    other = decode_standing(result.answer.meta);
  } catch (const control::ProtocolError&) {
    return;
  }
  if (host.role == Role::kBackup) {  // the primary lives, and will call; one that has lost all has not
    if (host.source == 0 && other.role != Role::kPrimary) promote(host, "its process is another one");
    return;
  }
  if (host.role == Role::kPrimary && other.role == Role::kPrimary) return settle(host, other);
  if (host.role == Role::kEmpty) {
    // At the start of a job nobody has anything: the home of a shard is its primary.
    if (host.shard != options_.index || other.role != Role::kEmpty || host.source != 0) return;
    host.role = Role::kPrimary;
    host.epoch = std::max(host.epoch, other.epoch) + 1;
  }
  attach_replica(host, std::move(result.socket));
}

void ServerLoop::attach_replica(Hosted& host, Socket socket) {
  if (host.replica != 0) return;
  Session& session = open_session(std::move(socket), host.shard, static_cast<uint32_t>(partner_of(host)));
  session.is_replica = true;
  host.replica = session.id;
  send_state(host);
}

void ServerLoop::send_state(Hosted& host) {
  Session* replica = find(host.replica);
  if (replica == nullptr) return;
  host.has_all = false;
  host.state_log = host.log;
  if (host.state) {
    for (WireFrame& frame : host.state->save(host.epoch)) {
      std::vector<Block> data;
      if (!frame.data.empty()) data.push_back(std::move(frame.data));
      replica->channel.send(frame.type, 0, std::move(frame.meta), std::move(data));
    }
  }
  replica->channel.send(Type::kStateEnd, host.log, encode(standing_of(host)));
}

void ServerLoop::handle_replica_frame(Session& session, WireFrame frame) {
  Hosted& host = *hosted(session.shard);
  if (frame.type == Type::kPulse || frame.type == Type::kTell) return;
  if (frame.type == Type::kAsk) return handle_ask(session, frame);
  if (frame.type == Type::kEventAck) {
    if (host.role != Role::kPrimary || host.replica != session.id) return;
    if (frame.request > host.log) throw control::ProtocolError("an acknowledgement of what was never sent");
    host.acked = std::max(host.acked, frame.request);
    if (!host.has_all && frame.request >= host.state_log) {
      host.has_all = true;
      host.solo = false;
      log_info("server {}: shard {} is replicated", options_.index, host.shard);
    }
    return release_held(host);
  }
  if (host.role == Role::kPrimary) {  // from one that has not yet heard of it
    session.closing = true;
    return;
  }
  switch (frame.type) {
    case Type::kStateBegin: {
      const StateBegin begin = decode_state_begin(frame.meta);
      host.source = session.id;
      host.role = Role::kEmpty;
      host.state.reset();
      host.epoch = begin.epoch;
      host.loading = Shard::begin_load(host.shard, begin, options_.codecs);
      return;
    }
    case Type::kStatePart:
    case Type::kStateRound:
      if (!host.loading || host.source != session.id) throw control::ProtocolError("a part of no state");
      return host.loading->load(frame);
    case Type::kStateEnd: {
      const Standing standing = decode_standing(frame.meta);
      host.source = session.id;
      host.source_instance = standing.instance;
      host.epoch = standing.epoch;
      if (host.loading) {
        host.state = std::move(host.loading);
        host.role = Role::kBackup;
      }
      session.event_ack = frame.request;
      if (frame.request == 0) session.channel.send(Type::kEventAck, 0, {});
      return;
    }
    default:
      break;
  }
  if (host.source != session.id || !host.state) throw control::ProtocolError("an event without a state");
  const Event event = decode_event(frame.type, frame.meta);
  fault_point("server.replicate");
  try {
    host.state->apply(event, std::move(frame.data));
  } catch (const std::exception&) {  // the primary has refused it as well
  }
  host.state->take_changes();
  session.event_ack = frame.request;
}

void ServerLoop::handle_ask(Session& session, const WireFrame& frame) {
  Hosted& host = *hosted(session.shard);
  const Standing other = decode_standing(frame.meta);
  const bool other_is_home = host.shard != options_.index;
  if (host.role == Role::kBackup && other.role == Role::kEmpty && other_is_home &&
      other.instance != host.source_instance) {
    promote(host, "its process is another one");
  }
  if (host.role == Role::kPrimary && other.role == Role::kPrimary) settle(host, other);
  session.channel.send(Type::kTell, frame.request, encode(standing_of(host)));
  if (host.role == Role::kPrimary) host.next_dial = Clock::now();  // it may want what we have
}

void ServerLoop::release_held(Hosted& host) {
  while (!host.held.empty() && (host.solo || host.held.front().log <= host.acked)) {
    send(host.held.front());
    host.held.pop_front();
  }
}

void ServerLoop::partner_lost(Hosted& host) {
  host.lost_at = Clock::now();
  host.next_dial = host.lost_at;
  host.has_all = false;
  host.loading.reset();
}

void ServerLoop::go_on_alone(Hosted& host, const std::string& why) {
  log_warn("server {}: {} is gone ({}): shard {} goes on without a replica", options_.index,
           name_of_server(partner_of(host)), why, host.shard);
  host.solo = true;
  release_held(host);
}

void ServerLoop::promote(Hosted& host, const std::string& why) {
  log_warn("server {}: {} is gone ({}): takes over shard {}", options_.index, name_of_server(partner_of(host)), why,
           host.shard);
  fault_point("server.promote");
  ++stats_.num_takeovers;
  host.role = Role::kPrimary;
  ++host.epoch;
  host.solo = true;
  host.source = 0;
  host.log = host.acked = host.state_log = 0;
  host.next_dial = Clock::now() + kDialPause;
  for (int w = 0; w < host.state->settings().num_workers; ++w) {
    const auto worker = static_cast<uint32_t>(w);
    if (host.state->presence(worker) == Presence::kHere) {
      host.gone[worker] = Clock::now() + options_.worker_grace + kReconnectTime;
    }
  }
}

void ServerLoop::settle(Hosted& host, const Standing& other) {
  const bool home = host.shard == options_.index;
  if (other.epoch > host.epoch || (other.epoch == host.epoch && home)) step_down(host);
}

void ServerLoop::step_down(Hosted& host) {
  log_warn("server {}: {} has taken over shard {}", options_.index, name_of_server(partner_of(host)), host.shard);
  host.role = Role::kEmpty;
  host.state.reset();
  host.held.clear();
  host.waiting.clear();
  host.gone.clear();
  host.session_of_worker.clear();
  host.solo = false;
  for (auto& [id, session] : sessions_) {
    if (session->shard == host.shard && (!session->is_replica || id == host.replica)) session->closing = true;
  }
}

}  // namespace trireme::server
