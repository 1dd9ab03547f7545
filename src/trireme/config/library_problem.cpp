#include "trireme/config/library_problem.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string demangled(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         std::free);
  return status == 0 ? name.get() : symbol;
}

}  // namespace

LibraryProblem problem_of_loading(const std::string& path, std::string said) {
  const bool is_about_itself = said.starts_with(path + ": ");
  while (said.starts_with(path + ": ")) said.erase(0, path.size() + 2);
  constexpr std::string_view kUndefined = "undefined symbol: ";
  if (const size_t at = said.find(kUndefined); at != said.npos) {
    const size_t first = at + kUndefined.size();
    const std::string symbol = said.substr(first, said.find_first_of(",\t (", first) - first);
    const std::string name = demangled(symbol);
    if (name.starts_with("trireme::")) {
      return {fmt::format("this Trireme does not define {}", name),
              "link Trireme::torch, and build it again with this Trireme's headers and libraries"};
    }
    return {fmt::format("no library that it links defines {}", name),
            fmt::format("add the one that does to target_link_libraries(); ldd -r {} lists all that is missing", path)};
  }
  for (const char* kind : {"file too short", "invalid ELF header", "wrong ELF class", "cannot read file data",
                           "only ET_DYN and ET_EXEC can be loaded", "cannot dynamically load"}) {
    if (is_about_itself && said.find(kind) != said.npos) {
      return {fmt::format("it is not a shared library ({})", said),
              "give the path of what CMake's add_library(NAME SHARED …) builds"};
    }
  }
  if (!is_about_itself && said.find("cannot open shared object file") != said.npos) {
    return {fmt::format("a library that it links is not found: {}", said),
            fmt::format("ldd {} lists them; link it by its full path, or name its folder in LD_LIBRARY_PATH", path)};
  }
  return {said, is_about_itself && said.find("Permission denied") != said.npos
                    ? "make the file readable, in a folder that may hold programs"
                    : fmt::format("ldd -r {} shows what it needs", path)};
}

LibraryProblem without_macro() {
  return {"it has no TRIREME_MODEL_LIBRARY",
          "write TRIREME_MODEL_LIBRARY(library) { library.add(…); } in one of its source files"};
}

LibraryProblem of_other_version(const std::string& built_for, const std::string& wanted) {
  return {fmt::format("it was built for {}, and this is {}", built_for, wanted),
          "build it again with this Trireme's headers and libraries"};
}

void refuse_library(const std::string& path, const LibraryProblem& problem) {
  throw UsageError(fmt::format("model.library = {}: {}", path, problem.problem), problem.cure);
}

}  // namespace trireme
