#include "trireme/launch/prefixed_output.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr size_t kMaxLine = 64 * 1024;     // a longer line is cut in pieces
constexpr size_t kMaxQueue = 1024 * 1024;  // with more than this waiting to be written, the ranks wait too
constexpr size_t kMaxWrite = PIPE_BUF;     // what a ready pipe takes without blocking

}  // namespace

PrefixedOutput::PrefixedOutput() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) throw SystemError("open an epoll", errno);
}

Fd PrefixedOutput::add(int rank, int target) {
  auto [read_end, write_end] = make_pipe();
  fcntl(read_end.get(), F_SETFL, O_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = streams_.size();
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, read_end.get(), &event) != 0) throw SystemError("watch a pipe", errno);
  streams_.push_back({std::move(read_end), rank, target, {}});
  return std::move(write_end);
}

bool PrefixedOutput::wants_input() const { return queues_[0].size() + queues_[1].size() < kMaxQueue; }

void PrefixedOutput::read_ready() {
  epoll_event events[64];
  const int count = epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) read_stream(streams_[events[i].data.u64]);
}

void PrefixedOutput::write_ready(int target) {
  std::string& lines = queue(target);
  const ssize_t written = write(target, lines.data(), std::min(lines.size(), kMaxWrite));
  if (written > 0) {
    lines.erase(0, static_cast<size_t>(written));
  } else if (written < 0 && errno != EAGAIN && errno != EINTR) {
    // Nobody reads any more: the ranks are told as if they had written there themselves.
    lines.clear();
    for (Stream& stream : streams_) {
      if (stream.target == target) stream.fd.reset();
    }
  }
}

void PrefixedOutput::close_pipes() {
  for (Stream& stream : streams_) {
    while (stream.fd.get() >= 0 && read_stream(stream)) {
    }
    stream.fd.reset();
    if (!stream.line.empty()) end_line(stream);
  }
}

/// False when there is nothing more for now.
bool PrefixedOutput::read_stream(Stream& stream) {
  char bytes[16 * 1024];
  const ssize_t count = read(stream.fd.get(), bytes, sizeof bytes);
  if (count < 0) return errno == EINTR;
  if (count == 0) {
    stream.fd.reset();  // and leaves the epoll by itself
    return false;
  }
  std::string_view rest(bytes, static_cast<size_t>(count));
  for (size_t end; (end = rest.find('\n')) != rest.npos; rest.remove_prefix(end + 1)) {
    stream.line += rest.substr(0, end);
    end_line(stream);
  }
  stream.line += rest;
  if (stream.line.size() > kMaxLine) end_line(stream);
  return true;
}

void PrefixedOutput::end_line(Stream& stream) {
  queue(stream.target) += "[rank " + std::to_string(stream.rank) + "] " + stream.line + "\n";
  stream.line.clear();
}

}  // namespace trireme
