#include "trireme/comm/control/control_poller.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "trireme/base/error.h"

namespace trireme::control {

Poller::Poller() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), bell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.valid() || !bell_.valid()) {
    throw SystemError("make an epoll descriptor", errno, "Raise the limit on open files: ulimit -n");
  }
  add(bell_.fd(), EPOLLIN);
}

void Poller::add(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, fd, &event) != 0) throw SystemError("watch a socket", errno);
}

void Poller::modify(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.fd(), EPOLL_CTL_MOD, fd, &event) != 0) throw SystemError("watch a socket", errno);
}

void Poller::remove(int fd) noexcept { ::epoll_ctl(epoll_.fd(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const epoll_event> Poller::wait(int timeout_ms) {
  const int n = ::epoll_wait(epoll_.fd(), events_.data(), static_cast<int>(events_.size()), timeout_ms);
  num_events_ = n > 0 ? static_cast<size_t>(n) : 0;
  size_t kept = num_events_;
  for (size_t i = 0; i < kept; ++i) {
    if (events_[i].data.fd == bell_.fd()) {
      uint64_t count;
      [[maybe_unused]] const ssize_t unused = ::read(bell_.fd(), &count, sizeof count);
      events_[i] = events_[--kept];
      break;
    }
  }
  return std::span(events_).first(kept);
}

void Poller::ring() noexcept {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t unused = ::write(bell_.fd(), &one, sizeof one);
}

}  // namespace trireme::control
