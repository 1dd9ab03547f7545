#include "trireme/runtime/offload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const std::string& folder, size_t num_bytes, const char* what, int error) {
  throw UsageError(fmt::format("parallel.offload = {}: cannot {} {} for states: {}", folder, what,
                               format_bytes(num_bytes), std::strerror(error)),
                   "name a folder on a disk with room, or leave parallel.offload empty");
}

}  // namespace

torch::Tensor offloaded_zeros(const std::string& folder, int64_t count, torch::ScalarType type) {
  if (folder.empty() || count == 0) return torch::zeros({count}, type);
  const size_t num_bytes = static_cast<size_t>(count) * c10::elementSize(type);
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  std::string name = (std::filesystem::path(folder) / "offload-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) refuse(folder, num_bytes, "create a file of", errno);
  ::unlink(name.c_str());
  if (const int error = ::posix_fallocate(file, 0, static_cast<off_t>(num_bytes)); error != 0) {
    ::close(file);
    refuse(folder, num_bytes, "reserve", error);
  }
  void* const memory = ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int error = errno;
  ::close(file);
  if (memory == MAP_FAILED) refuse(folder, num_bytes, "map", error);
  return torch::from_blob(
      memory, {count}, [num_bytes](void* at) { ::munmap(at, num_bytes); }, type);
}

}  // namespace trireme
