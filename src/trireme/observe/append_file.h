// A file that only grows, by whole records: a failed append leaves it as it was, a killed one tears at most the last.
#pragma once

#include <filesystem>
#include <string_view>

#include "trireme/base/file.h"

namespace trireme {

/// Owner: the caller; the destructor closes. Threads: one at a time. Blocks as long as the disk does.
class AppendFile {
 public:
  explicit AppendFile(File file) : file_(std::move(file)) {}

  /// One write() where the system takes it whole. Throws SystemError, with the file as long as it was.
  void append(std::string_view record);
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  File file_;
};

}  // namespace trireme
