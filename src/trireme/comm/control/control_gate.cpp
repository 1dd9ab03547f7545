#include "trireme/comm/control/control_gate.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>

namespace trireme::control {
namespace {

constexpr int kAcceptsPerEvent = 64;  // between two rounds the strangers that have answered get their turn
constexpr auto kPauseWithoutDescriptors = std::chrono::milliseconds(20);

bool send_at_once(const Socket& socket, std::span<const std::byte> bytes) {
  return ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

/// The next close() sends a reset and leaves no TIME_WAIT behind: a flood must not fill the kernel's tables.
void reset_on_close(const Socket& socket) {
  const linger now{1, 0};
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

}  // namespace

Gate::Gate(Poller& poller, Socket listener, Credentials credentials, Judge judge, Admit admit, GateLimits limits)
    : poller_(poller),
      listener_(std::move(listener)),
      credentials_(std::move(credentials)),
      judge_(std::move(judge)),
      admit_(std::move(admit)),
      limits_(limits) {
  poller_.add(listener_.fd(), EPOLLIN);
}

Gate::~Gate() {
  poller_.remove(listener_.fd());
  while (!strangers_.empty()) drop(strangers_.begin(), true);
}

bool Gate::handle(int fd) {
  if (fd == listener_.fd()) {
    accept_some();
    return true;
  }
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return false;
  read(found->second);
  return true;
}

void Gate::accept_some() {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    Socket socket(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.valid()) {
      greet(std::move(socket));
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      if (!strangers_.empty()) {
        drop(strangers_.begin(), true);
      } else {
        poller_.modify(listener_.fd(), 0);
        paused_until_ = Clock::now() + kPauseWithoutDescriptors;
        return;
      }
    } else if (errno != EINTR && errno != ECONNABORTED) {
      return;
    }
  }
}

void Gate::greet(Socket socket) {
  // An honest client waits for the challenge. Whoever has spoken or hung up already is turned away at the least cost,
  // which is what empties a flooded accept queue quickly.
  std::byte early;
  if (::recv(socket.fd(), &early, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN) {
    ++num_dropped_;
    return reset_on_close(socket);
  }
  if (strangers_.size() >= limits_.max_strangers) drop(strangers_.begin(), true);
  const int fd = socket.fd();
  Stranger& stranger = strangers_.emplace_back();
  stranger.socket = std::move(socket);
  stranger.expires = Clock::now() + limits_.patience;
  const Position position = std::prev(strangers_.end());
  by_fd_[fd] = position;
  try {
    poller_.add(fd, EPOLLIN);
    fill_random(stranger.nonce);
  } catch (const SystemError&) {  // the kernel is out of something; the others are still served
    return drop(position, true);
  }
  if (!send_at_once(stranger.socket, FrameWriter(FrameType::kChallenge).raw(stranger.nonce).finish())) {
    drop(position, true);
  }
}

void Gate::read(Position stranger) {
  if (stranger->refused) {
    // Waiting for the other side to read the refusal and hang up: closing first could destroy it on its way.
    std::array<std::byte, kMaxHandshakeBytes> waste;
    const ssize_t n = ::recv(stranger->socket.fd(), waste.data(), waste.size(), 0);
    if (n > 0) stranger->filled += static_cast<size_t>(n);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) drop(stranger, false);
    if (n > 0 && stranger->filled > kMaxHandshakeBytes) drop(stranger, true);
    return;
  }
  for (;;) {
    size_t wanted = kHeaderBytes;
    if (stranger->filled >= kHeaderBytes) wanted += decode_header(stranger->buffer).payload_bytes;
    const ssize_t n =
        ::recv(stranger->socket.fd(), stranger->buffer.data() + stranger->filled, wanted - stranger->filled, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) return drop(stranger, true);
    stranger->filled += static_cast<size_t>(n);
    if (stranger->filled < kHeaderBytes) continue;

    const FrameHeader header = decode_header(stranger->buffer);
    if (header.magic != kMagic || header.type != FrameType::kHello ||
        header.payload_bytes > kMaxHandshakeBytes - kHeaderBytes) {
      return drop(stranger, true);
    }
    if (stranger->filled == kHeaderBytes + header.payload_bytes) return judge(stranger);
  }
}

void Gate::judge(Position stranger) {
  const FrameHeader header = decode_header(stranger->buffer);
  if (header.version != kProtocolVersion) {
    return refuse(stranger, {RefusalCode::kOtherProtocol,
                             fmt::format("it speaks protocol {}, this process {}", kProtocolVersion, header.version)});
  }
  Hello hello;
  try {
    hello = decode_hello(std::span(stranger->buffer).subspan(kHeaderBytes, header.payload_bytes));
  } catch (const ProtocolError&) {
    return drop(stranger, true);
  }
  if (hello.protocol != kProtocolVersion) return refuse(stranger, {RefusalCode::kOtherProtocol, ""});
  if (hello.library != kVersionNumber) {
    return refuse(stranger, {RefusalCode::kOtherLibrary,
                             fmt::format("it is version {:#x}, this process {:#x}", kVersionNumber, hello.library)});
  }
  if (hello.job != credentials_.job) return refuse(stranger, {RefusalCode::kOtherJob, ""});
  if (!equal_in_constant_time(hello.mac, mac_of(hello, stranger->nonce, credentials_.token, "client"))) {
    return refuse(stranger, {RefusalCode::kWrongToken, ""});
  }
  if (const std::optional<Refusal> refusal = judge_(hello)) return refuse(stranger, *refusal);

  const Digest proof = mac_of(hello, stranger->nonce, credentials_.token, "server");
  if (!send_at_once(stranger->socket, FrameWriter(FrameType::kWelcome).raw(proof).finish())) {
    return drop(stranger, true);
  }
  Socket socket = std::move(stranger->socket);
  poller_.remove(socket.fd());
  by_fd_.erase(socket.fd());
  strangers_.erase(stranger);
  set_no_delay(socket);
  admit_(std::move(socket), hello);
}

void Gate::refuse(Position stranger, const Refusal& refusal) {
  if (!send_at_once(stranger->socket, encode(refusal))) return drop(stranger, true);
  ::shutdown(stranger->socket.fd(), SHUT_WR);
  stranger->refused = true;
  stranger->filled = 0;
}

void Gate::drop(Position stranger, bool reset) {
  if (!stranger->refused) ++num_dropped_;
  if (reset) reset_on_close(stranger->socket);
  poller_.remove(stranger->socket.fd());
  by_fd_.erase(stranger->socket.fd());
  strangers_.erase(stranger);
}

void Gate::tick(Clock::time_point now) {
  while (!strangers_.empty() && strangers_.front().expires <= now) drop(strangers_.begin(), true);
  if (paused_until_ && *paused_until_ <= now) {
    paused_until_.reset();
    poller_.modify(listener_.fd(), EPOLLIN);
  }
}

Clock::time_point Gate::next_tick() const {
  Clock::time_point next = strangers_.empty() ? Clock::time_point::max() : strangers_.front().expires;
  return paused_until_ ? std::min(next, *paused_until_) : next;
}

}  // namespace trireme::control
