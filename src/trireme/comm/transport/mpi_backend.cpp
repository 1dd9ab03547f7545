#include "trireme/comm/transport/mpi_backend.h"

#include <dlfcn.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::filesystem::path plugin_path() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&mpi_backend_installed), &info);
  const std::filesystem::path library = info.dli_fname != nullptr ? info.dli_fname : "";
  return std::filesystem::absolute(library).parent_path() / "libtrireme_mpi.so";
}

}  // namespace

bool mpi_backend_installed() { return std::filesystem::exists(plugin_path()); }

MpiBackend& open_mpi_backend() {
  using Factory = MpiBackend* (*)();
  // Opened once and never closed: MPI does not survive being unloaded.
  static MpiBackend* const backend = [] {
    const std::string path = plugin_path();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
      const std::string reason = dlerror();
      throw UsageError("the MPI transport cannot be opened: " + reason,
                       "install libopenmpi-dev and openmpi-bin and build again, or set TRIREME_TRANSPORT=tcp");
    }
    auto factory = reinterpret_cast<Factory>(dlsym(library, "trireme_make_mpi_backend"));
    if (factory == nullptr) throw Error(path + " is not Trireme's MPI transport", "build again");
    return factory();
  }();
  return *backend;
}

}  // namespace trireme
