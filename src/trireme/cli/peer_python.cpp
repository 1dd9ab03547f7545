#include "trireme/cli/peer_python.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/cli/commands.h"
#include "trireme/launch/process.h"

namespace trireme::cli {

namespace fs = std::filesystem;

const char* const kInstallTorch =
    "to have it: python3 -m venv ~/peer && ~/peer/bin/pip install torch==2.11.0 numpy (4.7 GB), "
    "then export TRIREME_PYTHON=~/peer/bin/python";

std::string peer_python() {
  const char* const path = std::getenv("TRIREME_PYTHON");
  return path == nullptr ? "" : path;
}

std::string peer_script(const std::string& name) {
  const fs::path folder = program_folder();
  for (const fs::path& place : {folder, folder / "../share/trireme"}) {
    std::error_code ignored;
    const fs::path path = fs::weakly_canonical(place / name, ignored);
    if (fs::exists(path, ignored)) return path;
  }
  return {};
}

std::string peer_problem(const std::string& script) {
  if (peer_python().empty()) return fmt::format("TRIREME_PYTHON names no Python with PyTorch\n  {}", kInstallTorch);
  try {
    find_program(peer_python());
  } catch (const UsageError&) {
    return fmt::format("TRIREME_PYTHON={} cannot be run\n  {}", peer_python(), kInstallTorch);
  }
  if (peer_script(script).empty()) return fmt::format("there is no {} beside trireme or in share/trireme", script);
  return {};
}

}  // namespace trireme::cli
