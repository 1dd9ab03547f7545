// Questions to the machine that `trireme doctor` and measurements ask: files of the kernel, ELF files, other programs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/deadline.h"

namespace trireme::measure {

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
/// Where a program of ours looks for its libraries: DT_RUNPATH of the ELF file, with $ORIGIN filled in.
std::vector<std::string> library_folders(const std::string& program);

/// Whether two processes that know each other only by pid, as ranks do, can share memory: 0, or the errno why not.
int try_peer_memory();

/// `PROGRAM ARGUMENTS` in the background: asked first, read last, killed when nobody waits for it any more.
class Question {
 public:
  /// An empty program has no answer.
  Question(const std::string& program, std::vector<std::string> arguments);
  Question(const Question&) = delete;
  ~Question();

  /// What it has said until it ended, or until the deadline.
  std::string answer(Deadline deadline);

 private:
  int fd_ = -1;
  pid_t pid_ = -1;
  std::string text_;
};

/// A GPU as nvidia-smi names it.
struct GpuCard {
  std::string name;
  uint64_t memory_bytes = 0;
  std::string compute_capability;  ///< "9.0"
  std::string driver;              ///< "580.95.05"
};
/// The arguments that make nvidia-smi tell what parse_gpu_cards() reads. Lines that it cannot read are left out.
std::vector<std::string> gpu_card_arguments();
std::vector<GpuCard> parse_gpu_cards(std::string_view text);
/// Nothing where there is no nvidia-smi, or no answer in time.
std::vector<GpuCard> ask_for_gpus(Deadline deadline);

}  // namespace trireme::measure
