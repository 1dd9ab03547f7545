#include "trireme/comm/control/control_coordinator.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include "trireme/comm/control/control_thread.h"

namespace trireme::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kNamedRanks = 10;                    // in a list of the missing
constexpr Clock::duration kRegisterBy = seconds(60);  // for one who has proved itself
constexpr Clock::duration kDrainTime = seconds(1);

/// One connection a rank, and the strangers: the usual soft limit of 1,024 descriptors is too low for 1,000 ranks.
void raise_descriptor_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// How often the loop wakes when nothing happens.
Clock::duration period_of(const ControlOptions& options) {
  return std::min<Clock::duration>(options.heartbeat_interval, milliseconds(200));
}

}  // namespace

Coordinator::Coordinator(Socket listener, CoordinatorOptions options)
    : options_(std::move(options)),
      address_(local_address(listener)),
      ranks_(static_cast<size_t>(options_.size)),
      next_pulse_(Clock::now()) {
  raise_descriptor_limit(static_cast<size_t>(options_.size) * 2 + options_.gate.max_strangers + 512);
  gate_.emplace(
      poller_, std::move(listener), options_.credentials, [this](const Hello& hello) { return judge(hello); },
      [this](Socket socket, const Hello& hello) { admit(std::move(socket), hello); }, options_.gate);
  thread_ = start_thread("trireme-coord", [this] { run(); });
}

Coordinator::~Coordinator() {
  stop_ = true;
  poller_.ring();
}

void Coordinator::run() noexcept {
  try {
    serve();
    close_down();
  } catch (...) {  // out of memory or descriptors: the closed connections tell the ranks
  }
  clients_.clear();
  gate_.reset();
}

void Coordinator::serve() {
  AbsenceDetector absence(period_of(options_.control), options_.control.silence_limit, Clock::now());
  for (;;) {
    for (const epoll_event& event : poller_.wait(wait_ms(Clock::now()))) {
      if (!gate_->handle(event.data.fd)) read(event.data.fd);
    }
    const auto now = Clock::now();
    if (absence.was_away(now)) {
      for (Rank& rank : ranks_) rank.last_heard = now;
    }
    gate_->tick(now);
    num_dropped_.store(gate_->num_dropped(), std::memory_order_relaxed);
    if (now >= next_pulse_) pulse(now);
    if (!poller_.was_full()) judge_silence(now);
    if (stop_ && phase_ != Phase::kClosing) {
      if (phase_ == Phase::kAssembling && num_present_ > 0) {
        const Waiting missing = waiting();
        fail(missing.first.empty() ? 0 : static_cast<int>(missing.first.front()),
             "rank 0 gave up before all ranks had joined: " + describe_missing(missing, options_.size));
      }
      phase_ = Phase::kClosing;
      close_by_ = now + options_.linger;
    }
    if (phase_ == Phase::kClosing && ready_to_close(now)) return;
  }
}

int Coordinator::wait_ms(Clock::time_point now) const {
  auto until = std::min({next_pulse_, gate_->next_tick(), close_by_, now + period_of(options_.control)});
  return Deadline(until).left_ms(60'000);
}

std::optional<Refusal> Coordinator::judge(const Hello& hello) const {
  if (hello.purpose != Purpose::kControl || hello.target != 0) {
    return Refusal{RefusalCode::kWrongPeer, "this is the coordinator"};
  }
  if (hello.size != ranks_.size()) {
    return Refusal{RefusalCode::kSizeDiffers,
                   fmt::format("the world has {} ranks, this process says {}", ranks_.size(), hello.size)};
  }
  if (hello.rank >= ranks_.size()) {
    return Refusal{RefusalCode::kRankOutside, fmt::format("the world has {} ranks", ranks_.size())};
  }
  return std::nullopt;
}

void Coordinator::admit(Socket socket, const Hello& hello) {
  const int fd = socket.fd();
  Client client{std::make_unique<Connection>(poller_, std::move(socket)), static_cast<int>(hello.rank), false,
                Clock::now()};
  clients_.insert_or_assign(fd, std::move(client));
}

void Coordinator::read(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  found->second.connection->flush();
  std::vector<Frame> frames;
  bool open = found->second.connection->receive(frames);
  for (const Frame& frame : frames) {
    try {
      if (!handle(fd, frame)) open = false;
    } catch (const ProtocolError&) {
      open = false;
    }
    if (!clients_.contains(fd)) return;
  }
  if (!open) lose(fd);
}

bool Coordinator::handle(int fd, const Frame& frame) {
  Client& client = clients_.at(fd);
  if (!client.registered) {
    return frame.type == FrameType::kRegister && enrol(fd, decode_register(frame.payload));
  }
  Rank& rank = ranks_[static_cast<size_t>(client.rank)];
  const auto now = Clock::now();
  rank.last_heard = now;
  switch (frame.type) {
    case FrameType::kHeartbeat:
      rank.beat = decode_beat(frame.payload);
      return true;
    case FrameType::kFailure: {
      Failure failure = decode_failure(frame.payload);
      fail(failure.culprit, std::move(failure.message));
      return true;
    }
    case FrameType::kAsk:
      client.connection->send(encode_answer(PayloadReader(frame.payload).u64(), survey(now)));
      return true;
    case FrameType::kGoodbye:
      say_goodbye(client);
      return true;
    default:
      return false;
  }
}

bool Coordinator::enrol(int fd, Member member) {
  Client& client = clients_.at(fd);
  if (member.rank != client.rank) return false;
  Rank& rank = ranks_[static_cast<size_t>(member.rank)];
  if (phase_ == Phase::kAssembling && failure_) {
    client.connection->send(encode(*failure_));
    client.connection->finish_sending();
    return true;
  }
  std::optional<Refusal> refusal;
  if (rank.presence == Presence::kPresent) {
    refusal = {RefusalCode::kRankTaken, fmt::format("by pid {} on host {}", rank.member.pid, rank.member.host_name)};
  } else if (phase_ != Phase::kAssembling) {
    refusal = {RefusalCode::kNotNow, "the job before it has not ended"};
  }
  if (refusal) {
    client.connection->send(std::make_shared<const std::vector<std::byte>>(encode(*refusal)));
    client.connection->finish_sending();
    return true;
  }
  client.registered = true;
  rank = Rank{Presence::kPresent, false, fd, std::move(member), {}, Clock::now()};
  ++num_present_;
  if (num_present_ == options_.size) {
    complete();
  } else {
    client.connection->send(encode(waiting()));
  }
  return true;
}

void Coordinator::complete() {
  std::vector<Member> members;
  members.reserve(ranks_.size());
  for (const Rank& rank : ranks_) members.push_back(rank.member);
  phase_ = Phase::kRunning;
  broadcast(encode_table(members));
  for (Rank& rank : ranks_) rank.last_heard = Clock::now();
}

void Coordinator::say_goodbye(Client& client) {
  Rank& rank = ranks_[static_cast<size_t>(client.rank)];
  if (rank.presence == Presence::kPresent) --num_present_;
  rank.presence = phase_ == Phase::kAssembling ? Presence::kAbsent : Presence::kLeft;
  rank.gave_up = phase_ == Phase::kAssembling;
  rank.fd = -1;
  client.registered = false;
  client.since = Clock::now();
  client.connection->finish_sending();
}

void Coordinator::lose(int fd) {
  const auto found = clients_.find(fd);
  const int rank = found->second.rank;
  const bool registered = found->second.registered;
  clients_.erase(found);
  if (!registered) return;
  Rank& lost = ranks_[static_cast<size_t>(rank)];
  lost.fd = -1;
  if (lost.presence != Presence::kPresent) return;
  lost.presence = Presence::kFailed;
  --num_present_;
  fail(rank, fmt::format("{} died: its connection closed{}{}", describe(rank),
                         phase_ == Phase::kAssembling ? " while the others were joining" : "", last_heard_of(rank)));
}

void Coordinator::fail(int culprit, std::string message) {
  if (failure_) return;
  failure_ = Failure{culprit, std::move(message)};
  broadcast(encode(*failure_));
}

void Coordinator::broadcast(const Bytes& bytes, bool only_idle) {
  for (const Rank& rank : ranks_) {
    if (rank.fd < 0) continue;
    Connection& connection = *clients_.at(rank.fd).connection;
    if (!only_idle || connection.drained()) connection.send(bytes);
  }
}

void Coordinator::pulse(Clock::time_point now) {
  next_pulse_ = now + period_of(options_.control);
  // Whoever has not read the last one need not get another.
  broadcast(phase_ == Phase::kAssembling ? encode(waiting()) : encode(FrameType::kPulse), true);
  std::vector<int> late;
  for (const auto& [fd, client] : clients_) {
    if (!client.registered && now - client.since > kRegisterBy) late.push_back(fd);
  }
  for (int fd : late) lose(fd);
}

void Coordinator::judge_silence(Clock::time_point now) {
  if (phase_ == Phase::kAssembling) return;
  for (int r = 0; r < options_.size; ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    if (rank.presence != Presence::kPresent || now - rank.last_heard <= options_.control.silence_limit) continue;
    // Its connection stays: should it wake up, it learns what the others were told.
    rank.presence = Presence::kFailed;
    --num_present_;
    fail(r, fmt::format("{} stopped answering {:.1f} s ago{}", describe(r),
                        std::chrono::duration<double>(now - rank.last_heard).count(), last_heard_of(r)));
  }
}

Waiting Coordinator::waiting() const {
  Waiting never_came, gave_up;
  for (uint32_t r = 0; r < ranks_.size(); ++r) {
    if (ranks_[r].presence == Presence::kPresent) continue;
    Waiting& list = ranks_[r].gave_up ? gave_up : never_came;
    if (++list.num_missing <= kNamedRanks) list.first.push_back(r);
  }
  // Those who never came are the reason why others gave up.
  return never_came.num_missing > 0 ? never_came : gave_up;
}

std::vector<RankStatus> Coordinator::survey(Clock::time_point now) const {
  std::vector<RankStatus> result;
  result.reserve(ranks_.size());
  for (int r = 0; r < options_.size; ++r) {
    const Rank& rank = ranks_[static_cast<size_t>(r)];
    result.push_back({r, std::chrono::duration<double>(now - rank.last_heard).count(), rank.beat.group,
                      rank.beat.sequence, rank.beat.step, rank.beat.operation});
  }
  return result;
}

std::string Coordinator::describe(int rank) const { return describe_member(ranks_[static_cast<size_t>(rank)].member); }

std::string Coordinator::last_heard_of(int rank) const {
  const Beat& beat = ranks_[static_cast<size_t>(rank)].beat;
  std::string text;
  if (beat.step != 0) text += fmt::format(" at step {}", beat.step);
  if (beat.sequence != 0) text += fmt::format("{} sequence {}", text.empty() ? " at" : ",", beat.sequence);
  return text.empty() ? text : "; last heard of" + text;
}

bool Coordinator::ready_to_close(Clock::time_point now) const {
  if (num_present_ == 0 || now >= close_by_) return true;
  // After a failure everybody knows, and nobody need be waited for, once the word is out.
  return failure_.has_value();
}

void Coordinator::close_down() {
  if (num_present_ > 0 && !failure_) {
    std::string still;
    for (int r = 0, named = 0; r < options_.size && named < static_cast<int>(kNamedRanks); ++r) {
      if (ranks_[static_cast<size_t>(r)].presence != Presence::kPresent) continue;
      still += fmt::format("{}{}", named++ == 0 ? "" : ", ", r);
    }
    fail(0, fmt::format("{} left the job while {} others had not (rank {})", describe(0), num_present_, still));
  }
  gate_.reset();
  for (auto& [fd, client] : clients_) client.connection->finish_sending();
  // One that stopped answering will not answer now.
  std::erase_if(clients_, [this](const auto& entry) {
    return ranks_[static_cast<size_t>(entry.second.rank)].presence == Presence::kFailed;
  });
  // Closing over unread bytes would send a reset, which can overtake the last frame; so the others close first.
  const Deadline deadline = Deadline::after(kDrainTime);
  while (!clients_.empty() && !deadline.expired()) {
    for (const epoll_event& event : poller_.wait(deadline.left_ms(1000))) {
      const auto found = clients_.find(event.data.fd);
      if (found == clients_.end()) continue;
      found->second.connection->flush();
      std::vector<Frame> ignored;
      if (!found->second.connection->receive(ignored)) clients_.erase(found);
    }
  }
}

}  // namespace trireme::control
