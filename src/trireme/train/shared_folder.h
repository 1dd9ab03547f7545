// Checks whether all ranks of a job see the same run folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

/// Returns a sentence that names both hosts if some rank does not see what rank 0 writes into `folder`, the same on all
/// ranks; nullopt if all see it. Collective; blocks for up to ten seconds, since other hosts may see a new file late.
/// Throws Error if rank 0 cannot write there.
std::optional<std::string> unshared_folder(Communicator& comm, const std::filesystem::path& folder);

}  // namespace trireme
