#include "trireme/base/error.h"

#include <system_error>

namespace trireme {

SystemError::SystemError(const std::string& doing, int error_number, const std::string& cure)
    : Error("cannot " + doing + ": " + std::generic_category().message(error_number), cure),
      error_number_(error_number) {}

}  // namespace trireme
