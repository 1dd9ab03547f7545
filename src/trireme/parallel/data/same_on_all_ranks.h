// Finds out, before anything is exchanged, that ranks disagree: otherwise they would add apples to oranges, or hang.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

/// Collective. Returns where all ranks have passed the same lines. Otherwise throws UsageError on all of them, which
/// names the first line that differs from rank 0's: "the model of rank 2 differs from rank 0's: …". `what` and `cure`
/// are for the message. Blocks as long as the slowest rank takes to come, CommError at the communicator's timeout.
void check_same_on_all_ranks(Communicator& comm, const std::string& what, const std::vector<std::string>& lines,
                             const std::string& cure);

/// Sends bytes of any number from `root` to all: whoever receives need not know how many.
std::string broadcast_text(Communicator& comm, std::string text, int root);

}  // namespace trireme
