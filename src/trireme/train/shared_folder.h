// Whether the ranks of a job see one and the same run folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/comm/communicator.h"

namespace trireme {

/// Where a rank does not see what rank 0 writes into `folder`: the sentence that says so, with both hosts; the same on
/// all ranks. Collective; blocks for up to ten seconds, since other hosts may learn late of a new file. Throws Error
/// where rank 0 cannot write there.
std::optional<std::string> unshared_folder(Communicator& comm, const std::filesystem::path& folder);

}  // namespace trireme
