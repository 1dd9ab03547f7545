// The output of several ranks on one terminal: whole lines, each with its rank in front.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "trireme/launch/process.h"

namespace trireme {

/// For an event loop: nothing here blocks. Throws SystemError where it is set up, nowhere else.
/// When the reader is slow, the queue fills, the pipes are no longer read and the ranks wait: none is lost. When it is
/// gone, the pipes close.
class PrefixedOutput {
 public:
  PrefixedOutput();

  /// A pipe whose lines go to `target`, stdout (1) or stderr (2). Returns its write end, for the child.
  Fd add(int rank, int target);

  /// Readable when a pipe is, to be polled while wants_input().
  int epoll() const { return epoll_.get(); }
  bool wants_input() const;
  void read_ready();

  /// Lines wait for `target` to take them; write_ready() once it does.
  bool wants_write(int target) const { return !queue(target).empty(); }
  void write_ready(int target);

  /// The ranks have ended: what is in the pipes, and unfinished lines, now waits to be written.
  void close_pipes();

 private:
  struct Stream {
    Fd fd;
    int rank;
    int target;
    std::string line;
  };

  bool read_stream(Stream& stream);
  void end_line(Stream& stream);
  std::string& queue(int target) { return queues_[static_cast<size_t>(target - 1)]; }
  const std::string& queue(int target) const { return queues_[static_cast<size_t>(target - 1)]; }

  Fd epoll_;
  std::vector<Stream> streams_;
  std::array<std::string, 2> queues_;
};

}  // namespace trireme
