#include "trireme/server/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/crc32c.h"

namespace trireme::server {
namespace {

constexpr size_t kStagedBytes = 64 << 10;
constexpr size_t kBytesPerTurn = 8 << 20;

}  // namespace

Channel::Channel(control::Poller& poller, Socket socket)
    : poller_(poller), socket_(std::move(socket)), staged_(kStagedBytes) {
  poller_.add(socket_.fd(), EPOLLIN);
}

Channel::~Channel() { poller_.remove(socket_.fd()); }

bool Channel::receive(std::vector<WireFrame>& frames) {
  try {
    for (size_t start = bytes_in_; bytes_in_ - start < kBytesPerTurn;) {
      while (parse(frames)) {
      }
      // What is left of large data goes straight to where it belongs.
      const bool direct = has_meta_ && data_filled_ < header_.data_bytes;
      std::byte* to = direct ? incoming_.data.data() + data_filled_ : staged_.data() + filled_;
      const size_t room = direct ? header_.data_bytes - data_filled_ : staged_.size() - filled_;
      const ssize_t n = ::recv(socket_.fd(), to, room, 0);
      if (n > 0) {
        (direct ? data_filled_ : filled_) += static_cast<size_t>(n);
        bytes_in_ += static_cast<size_t>(n);
        heard_ = Clock::now();
      } else if (n == 0) {
        return false;
      } else if (errno == EAGAIN) {
        return true;
      } else if (errno != EINTR) {
        reason_ = std::strerror(errno);
        return false;
      }
    }
    while (parse(frames)) {
    }
    return true;
  } catch (const control::ProtocolError& error) {
    reason_ = error.what();
  } catch (const std::bad_alloc&) {
    reason_ = "no memory for what it sends";
  }
  return false;
}

/// Takes one step with what is staged; false when it needs more bytes.
bool Channel::parse(std::vector<WireFrame>& frames) {
  const size_t have = filled_ - used_;
  const auto move_up = [&] {  // room behind what is staged
    std::memmove(staged_.data(), staged_.data() + used_, filled_ - used_);
    filled_ -= used_;
    used_ = 0;
  };
  if (!has_header_) {
    if (have < kHeaderBytes) {
      move_up();
      return false;
    }
    std::copy_n(staged_.data() + used_, kHeaderBytes, header_bytes_.begin());
    header_ = decode_wire_header(header_bytes_);
    used_ += kHeaderBytes;
    has_header_ = true;
    return true;
  }
  if (!has_meta_) {
    if (have < header_.meta_bytes) {
      move_up();
      if (staged_.size() < header_.meta_bytes) staged_.resize(header_.meta_bytes);
      return false;
    }
    incoming_ = {header_.type, header_.request, {}, {}};
    incoming_.meta.assign(staged_.data() + used_, staged_.data() + used_ + header_.meta_bytes);
    used_ += header_.meta_bytes;
    verify(header_bytes_, header_, incoming_.meta);
    incoming_.data = Block(header_.data_bytes);
    data_filled_ = 0;
    has_meta_ = true;
    return true;
  }
  if (const size_t taken = std::min(have, header_.data_bytes - data_filled_); taken > 0) {
    std::memcpy(incoming_.data.data() + data_filled_, staged_.data() + used_, taken);
    used_ += taken;
    data_filled_ += taken;
  }
  if (used_ == filled_) used_ = filled_ = 0;
  if (data_filled_ < header_.data_bytes) return false;
  if (crc32c(incoming_.data.bytes()) != header_.data_check) {
    throw control::ProtocolError("data was damaged on its way");
  }
  frames.push_back(std::move(incoming_));
  incoming_ = {};
  has_header_ = has_meta_ = false;
  return true;
}

void Channel::send(Type type, uint64_t request, std::vector<std::byte> meta, std::vector<Block> data,
                   uint32_t priority) {
  if (broken_) return;
  queue_.emplace(std::pair(priority, num_queued_++), Outgoing{type, request, std::move(meta), std::move(data)});
  if (!sending_) flush();
}

void Channel::begin(Outgoing frame) {
  current_ = std::move(frame);
  WireHeader header{current_.type, 0, 0, current_.request, 0, 0};
  for (const Block& block : current_.data) {
    header.data_bytes += static_cast<uint32_t>(block.num_bytes());
    header.data_check = crc32c(block.bytes(), header.data_check);
  }
  current_header_ = encode(header, current_.meta);
  segments_.clear();
  segments_.push_back({current_header_.data(), current_header_.size()});
  if (!current_.meta.empty()) segments_.push_back({current_.meta.data(), current_.meta.size()});
  for (const Block& block : current_.data) {
    if (!block.empty()) segments_.push_back({block.data(), block.num_bytes()});
  }
  segment_ = 0;
  sending_ = true;
}

void Channel::flush() {
  while (!broken_ && (sending_ || !queue_.empty())) {
    if (!sending_) {
      Outgoing next = std::move(queue_.begin()->second);
      queue_.erase(queue_.begin());
      begin(std::move(next));
    }
    std::array<iovec, 8> parts;
    size_t count = 0;
    for (size_t i = segment_; i < segments_.size() && count < parts.size(); ++i) {
      parts[count++] = {const_cast<std::byte*>(segments_[i].data), segments_[i].num_bytes};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket_.fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) {
      broken_ = true;
      reason_ = std::strerror(errno);
      queue_.clear();
      sending_ = false;
      ::shutdown(socket_.fd(), SHUT_RDWR);  // the next receive() says so
      break;
    }
    bytes_out_ += static_cast<size_t>(n);
    for (size_t left = static_cast<size_t>(n); left > 0;) {
      Segment& segment = segments_[segment_];
      const size_t taken = std::min(left, segment.num_bytes);
      segment.data += taken;
      segment.num_bytes -= taken;
      left -= taken;
      if (segment.num_bytes == 0) ++segment_;
    }
    if (segment_ == segments_.size()) {
      sending_ = false;
      current_ = {};
    }
  }
  watch();
}

void Channel::watch() {
  const bool wanted = !broken_ && (sending_ || !queue_.empty());
  if (watching_ == wanted) return;
  watching_ = wanted;
  poller_.modify(socket_.fd(), EPOLLIN | (wanted ? EPOLLOUT : 0u));
}

}  // namespace trireme::server
