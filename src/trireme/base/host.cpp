#include "trireme/base/host.h"

#include <unistd.h>

#include <climits>

namespace trireme {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, HOST_NAME_MAX) == 0 && name[0] != '\0' ? name : "unknown";
}

}  // namespace trireme
