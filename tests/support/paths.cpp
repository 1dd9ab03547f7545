#include "support/paths.h"

#include <cstdlib>

namespace trireme {

std::string program_path(const std::string& name) {
  const char* folder = std::getenv("TRIREME_BIN_DIR");
  return std::string(folder != nullptr ? folder : TRIREME_BIN_DIR) + "/" + name;
}

std::string source_path(const std::string& name) { return std::string(TRIREME_SOURCE_DIR "/") + name; }

bool sanitized() { return std::getenv("TRIREME_SANITIZED") != nullptr; }

}  // namespace trireme
