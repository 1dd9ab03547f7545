// All-reduces of known inputs, and a checksum of the bits of their results: the same on every transport.
#pragma once

#include "trireme/comm/communicator.h"

namespace trireme {

/// Takes the default algorithm of the communicator. Throws std::runtime_error when the ranks have different results.
uint64_t checksum_of_all_reduces(Communicator& comm);

}  // namespace trireme
