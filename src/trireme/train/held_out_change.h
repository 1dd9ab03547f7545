// Checks whether a resumed run holds out the same samples as the run that made its checkpoint.
#pragma once

#include <string>

#include "trireme/config/config.h"

namespace trireme {

/// Returns a warning for the user if the held-out samples of the same data differ; empty if they do not, or if that
/// cannot be known. `meta` is that of the checkpoint. Does not throw if its config is of another version.
std::string held_out_change(const std::string& meta, const Config& now);

}  // namespace trireme
