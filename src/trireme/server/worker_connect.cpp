// How a worker finds whoever serves a shard, and what it repeats there.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/host.h"
#include "trireme/base/log.h"
#include "trireme/server/worker_loop.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kRedialPause = 10ms;
constexpr auto kDialPatience = 3s;
constexpr uint32_t kNumSlots = 16;

}  // namespace

std::string WorkerLoop::name_of_server(int server) const {
  return fmt::format("server {} at {}", server, to_string(options_.servers[static_cast<size_t>(server)]));
}

int WorkerLoop::candidate(const Link& link) const {
  const int copies = options_.settings.replicate ? 2 : 1;
  return (link.shard + static_cast<int>(link.attempts) % copies) % static_cast<int>(links_.size());
}

void WorkerLoop::dial(Link& link) {
  Call call;
  call.number = link.shard;
  call.address = options_.servers[static_cast<size_t>(candidate(link))];
  call.hello.purpose = control::Purpose::kData;
  call.hello.channel = kWorkerChannel;
  call.hello.rank = static_cast<uint32_t>(options_.worker);
  call.hello.size = static_cast<uint32_t>(options_.settings.num_workers);
  call.hello.target = static_cast<uint32_t>(link.shard);
  call.type = Type::kJoin;
  call.patience = std::min<Clock::duration>(kDialPatience, options_.reconnect);
  JoinRequest join;
  join.event.type = Type::kJoin;
  join.event.worker = static_cast<uint32_t>(options_.worker);
  join.event.incarnation = incarnation_;
  join.event.leaves = leaves_;
  join.event.uses_all = !options_.uses;
  join.event.uses = uses_;
  join.event.pid = static_cast<uint32_t>(getpid());
  join.event.host = host_name();
  join.settings = options_.settings;
  join.num_servers = static_cast<int>(links_.size());
  join.keys = options_.keys;
  if (options_.shared_memory) link.offered = HostSharedArea::make(kNumSlots, slot_bytes_);
  join.ticket = link.offered.ticket();
  call.meta = encode(join);
  link.dialing = true;
  dialer_.start(std::move(call));
}

void WorkerLoop::handle_call(CallResult result) {
  Link& link = links_[static_cast<size_t>(result.number)];
  link.dialing = false;
  const int server = candidate(link);
  if (result.socket.valid() && result.answer.type == Type::kJoined) return connected(link, std::move(result));
  link.offered = {};
  try {
    if (result.socket.valid() && result.answer.type == Type::kError) {
      return fail(link, fmt::format("{} refuses worker {}: {}", name_of_server(server), options_.worker,
                                    decode_text(result.answer.meta)));
    }
    if (result.socket.valid()) result.reason = decode_text(result.answer.meta);
    if (result.refusal) control::throw_refusal(*result.refusal, name_of_server(server), options_.worker);
  } catch (const control::ProtocolError& error) {
    result.reason = error.what();
  } catch (const Error& error) {
    return fail(link, error.what());
  }
  const std::string problem = fmt::format("{}: {}", name_of_server(server), result.reason);
  {
    const std::lock_guard lock(mutex_);
    last_problem_ = problem;
  }
  const bool alone = !options_.settings.replicate;
  const auto patience = link.has_joined ? options_.reconnect : options_.timeout;
  if ((alone && link.has_joined && result.refused_at_once) || Clock::now() - link.lost_at > patience) {
    return fail(link, fmt::format("worker {}: nobody serves shard {} of the parameters: {}\n  {}", options_.worker,
                                  link.shard, problem,
                                  alone ? "without replication a server that dies takes its weights with it: switch it "
                                          "on, or go on from a checkpoint"
                                        : "both servers that had it are gone: go on from a checkpoint"));
  }
  ++link.attempts;
  link.next_dial = Clock::now() + kRedialPause;
}

void WorkerLoop::connected(Link& link, CallResult result) {
  Joined joined;
  try {
    joined = decode_joined(result.answer.meta);
  } catch (const control::ProtocolError&) {
    link.next_dial = Clock::now() + kRedialPause;
    return;
  }
  if (link.has_joined && joined.lineage != link.joined.lineage) {
    return fail(link, fmt::format("worker {}: {} has lost shard {}: it was started anew without its weights\n  go on "
                                  "from a checkpoint",
                                  options_.worker, name_of_server(candidate(link)), link.shard));
  }
  link.channel = std::make_unique<Channel>(poller_, std::move(result.socket));
  link.area = joined.shares_memory ? std::move(link.offered) : HostSharedArea();
  link.offered = {};
  {
    const std::lock_guard lock(mutex_);
    if (!link.has_joined) {
      first_clock_ = num_joined_ == 0 ? joined.clock : std::min(first_clock_, joined.clock);
      ++num_joined_;
    } else {
      ++stats_.num_reconnects;
    }
    changed_.notify_all();
  }
  link.has_joined = true;
  link.joined = joined;
  // What had arrived before the connection broke counts; the rest goes again, in its order.
  while (!link.unacked.empty() && link.unacked.begin()->first <= joined.last_sequence) {
    finish_event(link, link.unacked.begin(), {}, {});
  }
  for (auto& [sequence, request] : link.unacked) send_event(link, request);
  for (auto& [id, request] : link.asked) send_query(link, request);
}

void WorkerLoop::lost(Link& link, const std::string& why) {
  log_info("worker {}: connection to shard {} lost: {}", options_.worker, link.shard, why);
  link.channel.reset();
  link.area = {};
  link.lost_at = Clock::now();
  link.next_dial = link.lost_at;
}

void WorkerLoop::fail(Link& link, const std::string& text) {
  link.failure = text;
  for (auto* queue : {&link.events, &link.queries}) {
    for (auto& [key, request] : *queue) finish(request, text);
    queue->clear();
  }
  for (auto& [sequence, request] : link.unacked) finish(request, text);
  for (auto& [id, request] : link.asked) finish(request, text);
  link.unacked.clear();
  link.asked.clear();
  link.sequence_of.clear();
  const std::lock_guard lock(mutex_);
  if (first_failure_.empty()) first_failure_ = text;
  changed_.notify_all();
}

}  // namespace trireme::server
