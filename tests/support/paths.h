// Where tests find what they start and read. Tests include this instead of knowing the paths of their tree, so that a
// compiler cache has them for every clone.
#pragma once

#include <string>

namespace trireme {

/// A program of this build; of another folder with TRIREME_BIN_DIR in the environment.
std::string program_path(const std::string& name);
/// A file of the source tree.
std::string source_path(const std::string& name);
/// Whether this runs under a sanitizer, where tests ask for less.
bool sanitized();

}  // namespace trireme
