// Questions to the machine that `trireme doctor` asks: files of the kernel, ELF files, other programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/deadline.h"

namespace trireme::cli {

/// The whole file, trimmed; empty where there is none.
std::string read_text(const std::string& path);
/// The number after "Name:" in a file like /proc/meminfo.
std::optional<uint64_t> read_field(const std::string& path, const std::string& name);
/// A limit of this process's control group: v2, or the v1 controller. The nearest one on the way to the root counts.
std::optional<std::string> cgroup_value(const std::string& v2_file, const std::string& v1_controller,
                                        const std::string& v1_file);

/// The path of a program; empty where it is not in PATH.
std::string find_in_path(const std::string& name);
/// The path of a library in `folders`, LD_LIBRARY_PATH or where systems keep them; empty where there is none.
std::string find_library(const std::string& name, std::vector<std::string> folders);
/// Where a program looks for its libraries: DT_RUNPATH of an ELF file, with $ORIGIN filled in.
std::vector<std::string> library_folders(const std::string& program);

/// Whether two processes that know each other only by pid, as ranks do, can share memory: 0, or the errno why not.
int try_peer_memory();

/// `PROGRAM --version` in the background: asked first, read last, killed when nobody waits for it any more.
class VersionQuestion {
 public:
  explicit VersionQuestion(const std::string& program);
  VersionQuestion(const VersionQuestion&) = delete;
  ~VersionQuestion();

  /// The first line of the answer; empty when it took too long.
  std::string answer(Deadline deadline);

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
};

}  // namespace trireme::cli
