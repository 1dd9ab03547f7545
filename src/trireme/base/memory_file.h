// A file in memory that this process shares with those that it starts.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/fd.h"

namespace trireme {

/// Gone when the last process that inherited it has ended.
class MemoryFile {
 public:
  /// Throws SystemError.
  explicit MemoryFile(const char* name);

  int fd() const { return fd_.get(); }
  /// In this process and in every one that it starts.
  std::string path() const;
  /// What has been written so far.
  std::string text() const;
  /// Appends. Throws SystemError.
  void write(std::string_view text);

 private:
  Fd fd_;
};

}  // namespace trireme
