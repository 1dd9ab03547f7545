#include "trireme/cli/commands.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "trireme/base/build_info.h"
#include "trireme/base/error.h"
#include "trireme/base/version.h"
#include "trireme/measure/crew.h"

namespace trireme::cli {

std::string version_text() {
  const bool known = kGitDescription != "unknown";
  return known ? fmt::format("{} ({})", kVersion, kGitDescription) : std::string(kVersion);
}

void print_json(const Json& json) { fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace)); }

void replace_process(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const std::string& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  std::fflush(nullptr);
  execv(pointers[0], pointers.data());
  throw SystemError("run " + argv[0], errno);
}

int until_interrupted(const std::function<void()>& measuring) {
  try {
    measuring();
  } catch (const measure::Interrupted& interrupted) {
    fmt::print(stderr, "\nerror: stopped by SIG{}\n", sigabbrev_np(interrupted.signal));
    return 128 + interrupted.signal;
  }
  return 0;
}

}  // namespace trireme::cli
