#include "trireme/comm/transport/tcp_link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// Waking for each packet of a long message costs more than moving it, and takes the core from whoever computes.
constexpr size_t kWorthWaking = 1024 * 1024;

class TcpLink : public Link {
 public:
  TcpLink(ControlPlane& control, int peer, uint64_t channel, Clock::duration open_timeout)
      : control_(&control), peer_(peer), channel_(channel), open_timeout_(open_timeout) {}

  size_t write_some(ConstBytes data) override { return write_frame(data, {}); }

  size_t write_frame(ConstBytes header, ConstBytes payload) override {
    if (!out_.valid() && !open_out()) return 0;
    iovec parts[2] = {{const_cast<std::byte*>(header.data()), header.size()},
                      {const_cast<std::byte*>(payload.data()), payload.size()}};
    msghdr message{};
    message.msg_iov = header.empty() ? parts + 1 : parts;
    message.msg_iovlen = header.empty() || payload.empty() ? 1 : 2;
    const ssize_t n = sendmsg(out_.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) return static_cast<size_t>(n);
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw LinkBroken{peer_, std::strerror(errno)};
  }

  size_t read_some(Bytes data) override {
    if (!in_.valid()) {
      auto socket = control_->accept(peer_, channel_);
      if (!socket) return 0;
      in_ = std::move(*socket);
    }
    const ssize_t n = recv(in_.fd(), data.data(), data.size(), MSG_DONTWAIT);
    if (n > 0) return static_cast<size_t>(n);
    if (n == 0) throw LinkBroken{peer_, "the connection was closed"};
    if (errno == EAGAIN || errno == EINTR) return 0;
    throw LinkBroken{peer_, std::strerror(errno)};
  }

  int read_fd() const override { return in_.fd(); }
  int write_fd() const override { return out_.fd(); }

  void expect(size_t bytes) override {
    const int least = static_cast<int>(std::clamp<size_t>(bytes, 1, kWorthWaking));
    if (least == wakes_at_ || !in_.valid()) return;
    if (setsockopt(in_.fd(), SOL_SOCKET, SO_RCVLOWAT, &least, sizeof least) == 0) wakes_at_ = least;
  }

 private:
  // On a thread of its own, since a peer that has stopped lets its callers wait, and they have deadlines to keep. Most
  // answer within the first moment.
  bool open_out() {
    auto patience = std::chrono::milliseconds(0);
    if (!opening_.valid()) {
      opening_ = std::async(std::launch::async, [control = control_, peer = peer_, channel = channel_,
                                                 deadline = Deadline::after(open_timeout_)] {
        return control->connect(peer, channel, deadline);
      });
      patience = std::chrono::milliseconds(2);
    }
    if (opening_.wait_for(patience) != std::future_status::ready) return false;
    try {
      out_ = opening_.get();
      return true;
    } catch (const Error& error) {
      throw LinkBroken{peer_, error.what()};
    }
  }

  ControlPlane* control_;
  int peer_;
  uint64_t channel_;
  Clock::duration open_timeout_;
  Socket out_, in_;
  int wakes_at_ = 1;             // bytes that have come, as the kernel knows it
  std::future<Socket> opening_;  // its end waits for the thread
};

}  // namespace

std::unique_ptr<Link> make_tcp_link(ControlPlane& control, int peer_world_rank, uint64_t channel,
                                    Clock::duration open_timeout) {
  return std::make_unique<TcpLink>(control, peer_world_rank, channel, open_timeout);
}

}  // namespace trireme
