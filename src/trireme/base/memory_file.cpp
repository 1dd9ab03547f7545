#include "trireme/base/memory_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/error.h"

namespace trireme {

MemoryFile::MemoryFile(const char* name) : fd_(memfd_create(name, 0)) {
  if (fd_.get() < 0) throw SystemError("make a file in memory", errno);
}

std::string MemoryFile::path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

std::string MemoryFile::text() const {
  std::string text(static_cast<size_t>(std::max<off_t>(0, lseek(fd_.get(), 0, SEEK_END))), '\0');
  const ssize_t length = pread(fd_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, length)));
  return text;
}

void MemoryFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd_.get(), text.data(), text.size());
    if (written < 0 && errno != EINTR) throw SystemError("write a file in memory", errno);
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, written)));
  }
}

}  // namespace trireme
