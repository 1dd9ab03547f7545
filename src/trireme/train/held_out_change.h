// Whether a run that goes on holds out the samples that its checkpoint's run held out.
#pragma once

#include <string>

#include "trireme/config/config.h"

namespace trireme {

/// A warning for people where it holds out others of the same data; empty where all is well, or nothing can be said.
/// `meta` is that of the checkpoint. Does not throw for a config of another version.
std::string held_out_change(const std::string& meta, const Config& now);

}  // namespace trireme
