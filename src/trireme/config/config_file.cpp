#include "trireme/config/config_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/config/toml/toml_text.h"

namespace trireme {
std::string read_config_file(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    throw SystemError("open the configuration " + path, error,
                      error == ENOENT ? "a first one: trireme train --show-config > " + path : "");
  }
  std::string text;
  char piece[1 << 14];
  while (text.size() <= kMaxConfigBytes) {
    const ssize_t n = ::read(file.get(), piece, std::min(sizeof piece, kMaxConfigBytes + 1 - text.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError("read the configuration " + path, errno);
    if (n == 0) break;
    text.append(piece, static_cast<size_t>(n));
  }
  return text;
}

}  // namespace trireme
