#include "trireme/comm/control/control_rank.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <random>

#include "trireme/comm/control/control_silence.h"
#include "trireme/comm/control/control_thread.h"

namespace trireme::control {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Clock::duration kGoodbyeTime = seconds(1);
constexpr size_t kMaxDataStrangers = 256;

Beat read_progress(const RankProgress& progress) {
  return {progress.group.load(std::memory_order_relaxed), progress.sequence.load(std::memory_order_relaxed),
          progress.step.load(std::memory_order_relaxed), progress.operation.load(std::memory_order_relaxed)};
}

bool hung_up(const Socket& socket) {
  std::byte one;
  const ssize_t n = ::recv(socket.fd(), &one, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

RankControl::RankControl(Joined joined, const ControlOptions& options)
    : rank_(joined.rank),
      members_(std::move(joined.members)),
      credentials_(std::move(joined.credentials)),
      options_(options),
      connection_(std::make_unique<Connection>(poller_, std::move(joined.connection))),
      last_heard_(Clock::now()),
      coordinator_(std::move(joined.coordinator)) {
  GateLimits limits;
  limits.max_strangers = kMaxDataStrangers;
  gate_.emplace(
      poller_, std::move(joined.listener), credentials_, [this](const Hello& hello) { return judge(hello); },
      [this](Socket socket, const Hello& hello) { admit(std::move(socket), hello); }, limits);
  thread_ = start_thread("trireme-control", [this] { run(); });
}

RankControl::~RankControl() { leave(); }

void RankControl::run() noexcept {
  try {
    serve();
  } catch (const std::exception& error) {
    try {
      failure_.set({rank_, fmt::format("the control thread of {} ended: {}", describe_member(members_[size_t(rank_)]),
                                       error.what())});
    } catch (...) {  // not even memory for the message; the coordinator sees the connection close
    }
  }
  connection_.reset();
  gate_.reset();
  const std::lock_guard lock(mutex_);
  connected_ = false;
  changed_.notify_all();
}

void RankControl::serve() {
  AbsenceDetector absence(options_.heartbeat_interval, options_.silence_limit, Clock::now());
  auto next_beat = Clock::now();
  auto leave_by = Clock::time_point::max();
  bool suspected = false;
  for (;;) {
    for (const epoll_event& event :
         poller_.wait(Deadline(std::min({next_beat, gate_->next_tick(), leave_by})).left_ms(60'000))) {
      if (connection_ && event.data.fd == connection_->fd()) {
        read_connection();
      } else {
        gate_->handle(event.data.fd);
      }
    }
    const auto now = Clock::now();
    if (absence.was_away(now)) last_heard_ = now;
    gate_->tick(now);

    std::vector<Bytes> outbox;
    bool leaving;
    {
      const std::lock_guard lock(mutex_);
      outbox.swap(outbox_);
      leaving = leaving_;
    }
    for (Bytes& bytes : outbox) {
      if (connection_) connection_->send(std::move(bytes));
    }
    if (leaving && leave_by == Clock::time_point::max()) {
      leave_by = now + kGoodbyeTime;
      if (connection_) {
        connection_->send(encode(FrameType::kGoodbye));
        connection_->finish_sending();
      }
    }
    // The coordinator hangs up once it has read the goodbye.
    if (leaving && (!connection_ || suspected || now >= leave_by)) return;

    if (now >= next_beat) {
      next_beat = now + options_.heartbeat_interval;
      if (connection_ && connection_->drained()) connection_->send(encode(read_progress(progress_)));
    }
    if (connection_ && !suspected && !poller_.was_full() && now - last_heard_ > options_.silence_limit) {
      suspected = true;
      const Failure silent{
          0, fmt::format("{} stopped answering {:.1f} s ago (it is the coordinator)", describe_member(members_.front()),
                         std::chrono::duration<double>(now - last_heard_).count())};
      failure_.set(silent);
      // The connection stays: should rank 0 wake up, it learns what it is held for.
      connection_->send(encode(silent));
    }
  }
}

void RankControl::read_connection() {
  connection_->flush();
  std::vector<Frame> frames;
  bool open = connection_->receive(frames);
  for (const Frame& frame : frames) {
    try {
      handle(frame);
    } catch (const ProtocolError&) {
      open = false;
    }
  }
  if (!frames.empty()) last_heard_ = Clock::now();
  if (!open) lose_coordinator();
}

void RankControl::handle(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kPulse:
      return;
    case FrameType::kFailure:
      failure_.set(decode_failure(frame.payload));
      return;
    case FrameType::kAnswer: {
      std::vector<RankStatus> ranks;
      const uint64_t question = decode_answer(frame.payload, ranks);
      const std::lock_guard lock(mutex_);
      const auto asked = answers_.find(question);
      if (asked == answers_.end()) return;  // its asker no longer waits
      asked->second = std::move(ranks);
      changed_.notify_all();
      return;
    }
    default:
      throw ProtocolError("the coordinator sent a frame out of place");
  }
}

void RankControl::lose_coordinator() {
  connection_.reset();
  const std::lock_guard lock(mutex_);
  connected_ = false;
  if (!leaving_) failure_.set({0, describe_member(members_.front()) + " died: its connection closed"});
  changed_.notify_all();
}

void RankControl::post(Bytes bytes) {
  {
    const std::lock_guard lock(mutex_);
    outbox_.push_back(std::move(bytes));
  }
  poller_.ring();
}

void RankControl::report(const Failure& failure) noexcept {
  try {
    if (failure_.set(failure)) post(encode(failure));
  } catch (...) {  // out of memory: the next report, or the end of this process, tells the others
  }
}

std::vector<RankStatus> RankControl::survey(Deadline deadline) {
  uint64_t question;
  {
    const std::lock_guard lock(mutex_);
    question = ++num_questions_;
    answers_[question];
  }
  post(FrameWriter(FrameType::kAsk).u64(question).to_bytes());
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [&] { return !answers_[question].empty() || !connected_; });
  const std::vector<RankStatus> answer = std::move(answers_[question]);
  answers_.erase(question);
  if (!answer.empty()) return answer;
  const Failure* first = failure();
  throw Error(fmt::format("{}, the coordinator, {}{}", describe_member(members_.front()),
                          connected_ ? "did not answer in time" : "can no longer be asked",
                          first != nullptr ? ": " + first->message : ""));
}

Socket RankControl::connect(int peer, uint64_t channel, Deadline deadline) {
  if (peer < 0 || peer >= static_cast<int>(members_.size())) {
    throw UsageError(
        fmt::format("rank {} cannot connect to rank {}: the world has {} ranks", rank_, peer, members_.size()));
  }
  const Member& other = members_[static_cast<size_t>(peer)];
  const SocketAddress address{other.address, other.port};
  Hello hello;
  hello.purpose = Purpose::kData;
  hello.rank = static_cast<uint32_t>(rank_);
  hello.size = static_cast<uint32_t>(members_.size());
  hello.target = static_cast<uint32_t>(peer);
  hello.channel = channel;

  const auto doing = [&] {
    return fmt::format("connect rank {} to {} at {}", rank_, describe_member(other), to_string(address));
  };
  std::minstd_rand random(std::random_device{}());
  milliseconds pause{2};
  Clock::duration patience = seconds(1);
  for (;;) {
    int error_number = 0;
    try {
      const Deadline attempt(std::min(deadline.at(), Clock::now() + patience));
      Socket socket = connect_once(address, attempt);
      shake_hands(socket, credentials_, hello, attempt);
      return socket;
    } catch (const Refused& refused) {
      throw_refusal(refused.refusal(), describe_member(other) + " at " + to_string(address), rank_);
    } catch (const ProtocolError& error) {
      throw Error(fmt::format("cannot {}: {}", doing(), error.what()));
    } catch (const SystemError& error) {
      error_number = error.error_number();
    }
    // Refused, reset or late: its door may be crowded. Whether it is dead is for the coordinator to say.
    if (const Failure* first = failure()) throw Error(fmt::format("cannot {}: {}", doing(), first->message));
    if (deadline.left() <= pause) throw SystemError(doing(), error_number);
    std::this_thread::sleep_for(pause + milliseconds(random() % pause.count()));
    pause = std::min(pause * 2, milliseconds(100));
    patience = std::min<Clock::duration>(patience * 2, seconds(5));
  }
}

std::optional<Refusal> RankControl::judge(const Hello& hello) {
  if (hello.purpose != Purpose::kData || hello.target != static_cast<uint32_t>(rank_)) {
    return Refusal{RefusalCode::kWrongPeer, fmt::format("this is rank {}", rank_)};
  }
  if (hello.size != members_.size() || hello.rank >= members_.size()) {
    return Refusal{RefusalCode::kRankOutside, fmt::format("the world has {} ranks", members_.size())};
  }
  const std::lock_guard lock(mutex_);
  const auto found = arrived_.find({static_cast<int>(hello.rank), hello.channel});
  if (found != arrived_.end()) {
    if (!hung_up(found->second)) return Refusal{RefusalCode::kChannelTaken, fmt::format("channel {}", hello.channel)};
    arrived_.erase(found);
  }
  return std::nullopt;
}

void RankControl::admit(Socket socket, const Hello& hello) {
  const std::lock_guard lock(mutex_);
  arrived_.insert_or_assign({static_cast<int>(hello.rank), hello.channel}, std::move(socket));
}

std::optional<Socket> RankControl::accept(int peer, uint64_t channel) {
  const std::lock_guard lock(mutex_);
  const auto found = arrived_.find({peer, channel});
  if (found == arrived_.end()) return std::nullopt;
  std::optional<Socket> socket(std::move(found->second));
  arrived_.erase(found);
  return socket;
}

void RankControl::leave() noexcept {
  const std::lock_guard once(leave_mutex_);
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  poller_.ring();
  thread_.join();
  coordinator_.reset();
}

}  // namespace trireme::control
