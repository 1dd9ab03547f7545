#include "trireme/server/worker_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::server {
namespace {

using namespace std::chrono_literals;

constexpr auto kWorkerTick = 200ms;
constexpr auto kServerSilence = 3s;

}  // namespace

WorkerLoop::WorkerLoop(const WorkerOptions& options, const KeyTable& table, LeafRange leaves)
    : options_(options), leaves_(leaves), dialer_(poller_, options.credentials) {
  for (const std::string& name : options.uses.value_or(std::vector<std::string>())) uses_.push_back(table.find(name));
  fill_random(std::as_writable_bytes(std::span(&incarnation_, 1)));
  size_t largest = 0;
  for (const Piece& piece : table.pieces()) largest = std::max(largest, piece.count * sizeof(float));
  slot_bytes_ = static_cast<uint32_t>(largest);
  for (int shard = 0; shard < table.num_servers(); ++shard) links_.emplace_back().shard = shard;
  thread_ = std::thread([this] { run(); });
}

WorkerLoop::~WorkerLoop() {
  stopping_ = true;
  poller_.ring();
  thread_.join();
}

void WorkerLoop::wait_until_joined(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return num_joined_ == links_.size() || !first_failure_.empty(); };
  if (!changed_.wait_until(lock, deadline.at(), ended)) {
    throw Error(fmt::format("worker {}: not all parameter servers have answered in time{}{}", options_.worker,
                            last_problem_.empty() ? "" : "; the last: ", last_problem_),
                "see whether they run, and whether all were given the same addresses");
  }
  if (!first_failure_.empty()) throw Error(first_failure_);
}

void WorkerLoop::submit(std::vector<Request> requests) {
  {
    const std::lock_guard lock(mutex_);
    for (Request& request : requests) {
      request.id = ++num_requests_;
      ++num_under_way_;
      inbox_.push_back(std::move(request));
    }
  }
  poller_.ring();
}

bool WorkerLoop::wait_until_idle(Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.at(), [this] { return num_under_way_ == 0; });
}

void WorkerLoop::leave(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    saying_goodbye_ = true;
    goodbye_by_ = deadline.at();
  }
  poller_.ring();
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [this] { return stopping_.load(); });
}

WorkerStats WorkerLoop::stats() const {
  const std::lock_guard lock(mutex_);
  WorkerStats stats = stats_;
  stats.blocked_ns = *blocked_ns_;
  return stats;
}

void WorkerLoop::run() {
  bool said_goodbye = false;
  while (!stopping_) {
    auto next = Clock::now() + kWorkerTick;
    for (const Link& link : links_) {
      if (!link.channel && !link.dialing && link.failure.empty()) next = std::min(next, link.next_dial);
    }
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
    for (const epoll_event& event : poller_.wait(static_cast<int>(std::max<int64_t>(0, wait)))) {
      for (Link& link : links_) {
        if (!link.channel || link.channel->fd() != event.data.fd) continue;
        if (event.events & EPOLLOUT) link.channel->flush();
        if (event.events & ~static_cast<uint32_t>(EPOLLOUT)) handle(link);
        break;
      }
    }
    for (CallResult& result : dialer_.take()) handle_call(std::move(result));
    take_inbox();
    for (Link& link : links_) {
      if (!link.channel && !link.dialing && link.failure.empty() && Clock::now() >= link.next_dial) dial(link);
      if (link.channel) pump(link);
    }
    if (Clock::now() >= next_tick_) {
      tick();
      next_tick_ = Clock::now() + kWorkerTick;
    }
    bool leaving = false, late = false;
    {
      const std::lock_guard lock(mutex_);
      leaving = saying_goodbye_;
      late = leaving && Clock::now() >= goodbye_by_;
    }
    if (!leaving) continue;
    bool drained = true;
    for (Link& link : links_) {
      if (!link.channel) continue;
      if (!said_goodbye) link.channel->send(Type::kGoodbye, 0, {}, {}, UINT32_MAX);
      drained &= link.channel->drained();
    }
    said_goodbye = true;
    if (drained || late) {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
  }
  for (Link& link : links_) {
    link.channel.reset();
    if (link.failure.empty()) fail(link, "the worker has left");
  }
  take_inbox();
}

void WorkerLoop::take_inbox() {
  std::vector<Request> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(inbox_);
  }
  for (Request& request : taken) {
    Link& link = links_[static_cast<size_t>(request.shard)];
    if (!link.failure.empty()) {
      finish(request, link.failure);
    } else {
      auto& queue = request.is_event ? link.events : link.queries;
      queue.emplace(std::pair(request.priority, request.id), std::move(request));
    }
  }
}

void WorkerLoop::pump(Link& link) {
  while (!link.queries.empty()) {
    const auto first = link.queries.begin();
    send_query(link, first->second);
    link.asked.emplace(first->second.id, std::move(first->second));
    link.queries.erase(first);
  }
  while (!link.events.empty()) {
    const auto first = link.events.begin();
    if (link.unacked_bytes > 0 && link.unacked_bytes + first->second.num_bytes > options_.window_bytes) return;
    first->second.event.sequence = link.next_sequence++;
    link.unacked_bytes += first->second.num_bytes;
    link.sequence_of[first->second.id] = first->second.event.sequence;
    Request& request = link.unacked.emplace(first->second.event.sequence, std::move(first->second)).first->second;
    link.events.erase(first);
    send_event(link, request);
  }
}

void WorkerLoop::send_event(Link& link, Request& request) {
  request.sent_at = Clock::now();
  Event event = request.event;
  if (const auto slot = link.area.take(HostSharedArea::Side::kWorker, request.num_bytes)) {
    std::byte* to = link.area.slot(HostSharedArea::Side::kWorker, *slot, request.num_bytes).data();
    for (const Block& block : request.data) {
      if (!block.empty()) std::memcpy(to, block.data(), block.num_bytes());
      to += block.num_bytes();
    }
    event.slot = *slot;
    event.slot_bytes = static_cast<uint32_t>(request.num_bytes);
    link.channel->send(event.type, request.id, encode(event));
  } else {
    link.channel->send(event.type, request.id, encode(event), request.data);
  }
  const std::lock_guard lock(mutex_);
  stats_.bytes_sent += request.num_bytes;
}

void WorkerLoop::send_query(Link& link, const Request& request) {
  link.channel->send(request.query.type, request.id, encode(request.query), request.data);
}

void WorkerLoop::handle(Link& link) {
  std::vector<WireFrame> frames;
  const bool lives = link.channel->receive(frames);
  std::string reason = link.channel->reason();
  bool bad = false;
  for (WireFrame& frame : frames) {
    try {
      handle_frame(link, frame);
    } catch (const control::ProtocolError& error) {
      reason = error.what();
      bad = true;
      break;
    }
  }
  if (!lives || bad) lost(link, fmt::format("{}: {}", name_of_server(candidate(link)), reason));
}

void WorkerLoop::handle_frame(Link& link, WireFrame& frame) {
  const auto event = link.sequence_of.find(frame.request);
  const auto query = link.asked.find(frame.request);
  switch (frame.type) {
    case Type::kAck:
      if (event == link.sequence_of.end()) return;
      return finish_event(link, link.unacked.find(event->second), decode_answer(frame.meta), {});
    case Type::kError: {
      const std::string text = decode_text(frame.meta);
      if (event != link.sequence_of.end()) return finish_event(link, link.unacked.find(event->second), {}, text);
      if (query == link.asked.end()) return;
      finish(query->second, text);
      link.asked.erase(query);
      return;
    }
    case Type::kData: {
      const Answer answer = decode_answer(frame.meta);
      std::span<const std::byte> bytes = frame.data.bytes();
      if (answer.slot != kNoSlot) {
        bytes = link.area.slot(HostSharedArea::Side::kServer, answer.slot, answer.slot_bytes);
        if (bytes.size() != answer.slot_bytes) throw control::ProtocolError("a slot that does not exist");
      }
      if (query != link.asked.end()) {
        std::string error;
        try {
          query->second.deliver(bytes);
        } catch (const Error& wrong) {
          error = wrong.what();
        }
        {
          const std::lock_guard lock(mutex_);
          stats_.bytes_received += bytes.size();
          ++stats_.num_pulls;
        }
        finish(query->second, error);
        link.asked.erase(query);
      }
      if (answer.slot != kNoSlot) link.area.release(HostSharedArea::Side::kServer, answer.slot);
      return;
    }
    case Type::kNote:
      if (query != link.asked.end()) {
        const std::lock_guard lock(query->second.state->mutex);
        query->second.state->note =
            fmt::format("{} says: {}", name_of_server(candidate(link)), decode_text(frame.meta));
      }
      return;
    case Type::kPulse:
      return;
    default:
      throw control::ProtocolError("a frame that no server sends");
  }
}

void WorkerLoop::finish_event(Link& link, std::map<uint64_t, Request>::iterator at, const Answer& answer,
                              const std::string& error) {
  Request& request = at->second;
  link.unacked_bytes -= request.num_bytes;
  link.sequence_of.erase(request.id);
  {
    const std::lock_guard lock(mutex_);
    if (request.event.type == Type::kPush && answer.service_ns > 0) {
      ++stats_.num_pushes;
      stats_.num_dropped += answer.dropped;
      stats_.push_ns += nanoseconds(Clock::now() - request.sent_at);
      stats_.service_ns += answer.service_ns;
    }
  }
  finish(request, error, answer.dropped);
  link.unacked.erase(at);
}

void WorkerLoop::finish(Request& request, const std::string& error, bool dropped) {
  {
    Pending::State& state = *request.state;
    const std::lock_guard lock(state.mutex);
    if (!error.empty() && state.error.empty()) state.error = error;
    state.dropped += dropped;
    if (--state.left == 0) state.ended.notify_all();
  }
  const std::lock_guard lock(mutex_);
  if (--num_under_way_ == 0) changed_.notify_all();
}

void WorkerLoop::tick() {
  for (Link& link : links_) {
    if (!link.channel) continue;
    if (link.channel->drained()) link.channel->send(Type::kPulse, 0, {});  // what is queued says as much
    if (Clock::now() - link.channel->heard() > kServerSilence) {
      lost(link, fmt::format("{} has said nothing for {} s", name_of_server(candidate(link)), kServerSilence.count()));
    }
  }
}

}  // namespace trireme::server
