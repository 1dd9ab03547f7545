// Detects that ranks disagree before anything is exchanged: otherwise they would add up unrelated numbers, or hang.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

/// Collective. Returns if all ranks pass the same lines. Otherwise throws UsageError on all of them, naming the first
/// line that differs from rank 0's: "the model of rank 2 differs from rank 0's: …". `what` and `cure` go into the
/// message. Blocks until the slowest rank arrives; throws CommError at the communicator's timeout.
void check_same_on_all_ranks(Communicator& comm, const std::string& what, const std::vector<std::string>& lines,
                             const std::string& cure);

/// Broadcasts any number of bytes from `root`; receivers need not know how many.
std::string broadcast_text(Communicator& comm, std::string text, int root);

}  // namespace trireme
