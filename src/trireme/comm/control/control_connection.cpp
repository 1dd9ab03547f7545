#include "trireme/comm/control/control_connection.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace trireme::control {

Connection::Connection(Poller& poller, Socket socket) : poller_(poller), socket_(std::move(socket)) {
  poller_.add(socket_.fd(), EPOLLIN);
}

Connection::~Connection() { poller_.remove(socket_.fd()); }

bool Connection::receive(std::vector<Frame>& frames) {
  std::array<std::byte, 64 << 10> buffer;
  // A bounded number of reads, so that one busy peer cannot starve the others.
  for (int reads = 0; reads < 8; ++reads) {
    const ssize_t n = ::recv(socket_.fd(), buffer.data(), buffer.size(), 0);
    if (n > 0) {
      incoming_.insert(incoming_.end(), buffer.begin(), buffer.begin() + n);
      if (!parse(frames)) return false;
      if (static_cast<size_t>(n) < buffer.size()) return true;
    } else if (n == 0) {
      return false;
    } else if (errno == EAGAIN) {
      return true;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool Connection::parse(std::vector<Frame>& frames) {
  std::span<const std::byte> rest = incoming_;
  while (rest.size() >= kHeaderBytes) {
    const FrameHeader header = decode_header(rest);
    if (header.magic != kMagic || header.version != kProtocolVersion || header.payload_bytes > kMaxPayloadBytes) {
      return false;
    }
    if (rest.size() < kHeaderBytes + header.payload_bytes) break;
    const auto payload = rest.subspan(kHeaderBytes, header.payload_bytes);
    frames.push_back({header.type, {payload.begin(), payload.end()}});
    rest = rest.subspan(kHeaderBytes + header.payload_bytes);
  }
  if (rest.empty()) {
    incoming_ = {};
  } else {
    incoming_.erase(incoming_.begin(), incoming_.end() - static_cast<std::ptrdiff_t>(rest.size()));
  }
  return true;
}

void Connection::send(Bytes bytes) {
  if (broken_ || finishing_) return;
  queue_.push_back(std::move(bytes));
  flush();
}

void Connection::flush() {
  while (!queue_.empty() && !broken_) {
    const std::vector<std::byte>& first = *queue_.front();
    const ssize_t n =
        ::send(socket_.fd(), first.data() + sent_of_first_, first.size() - sent_of_first_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent_of_first_ += static_cast<size_t>(n);
      if (sent_of_first_ == first.size()) {
        queue_.pop_front();
        sent_of_first_ = 0;
      }
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      broken_ = true;
      queue_.clear();
    }
  }
  if (finishing_ && queue_.empty()) ::shutdown(socket_.fd(), SHUT_WR);
  watch();
}

void Connection::finish_sending() {
  finishing_ = true;
  flush();
}

void Connection::watch() {
  if (watching_output_ == !queue_.empty()) return;
  watching_output_ = !queue_.empty();
  poller_.modify(socket_.fd(), EPOLLIN | (watching_output_ ? EPOLLOUT : 0u));
}

}  // namespace trireme::control
