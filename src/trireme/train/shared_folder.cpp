#include "trireme/train/shared_folder.h"

#include <fmt/format.h>

#include <chrono>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "trireme/base/deadline.h"
#include "trireme/base/file.h"
#include "trireme/base/host.h"
#include "trireme/train/broadcast_result.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr auto kMostWait = std::chrono::seconds(10);
constexpr auto kLookEvery = std::chrono::milliseconds(50);

bool appears(const fs::path& file) {
  const Deadline deadline = Deadline::after(kMostWait);
  std::error_code ignored;
  while (!fs::exists(file, ignored)) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(kLookEvery);
  }
  return true;
}

}  // namespace

std::optional<std::string> unshared_folder(Communicator& comm, const fs::path& folder) {
  if (comm.size() == 1) return std::nullopt;
  // A new name, since network file systems cache for a while that a file was not there.
  const fs::path file = broadcast_result(comm, [&] {
    std::random_device random;
    const fs::path made = folder / fmt::format(".seen-by-all-{:08x}{:08x}", random(), random());
    File::create(made);
    return made.string();
  });
  const int none = comm.size();
  std::vector<int32_t> first = {appears(file) ? none : comm.rank()};
  comm.all_reduce(first, ReduceOp::kMin);
  std::error_code ignored;
  if (comm.rank() == 0) fs::remove(file, ignored);
  if (first[0] == none) return std::nullopt;
  const std::string theirs = broadcast_result(comm, host_name, first[0]), ours = broadcast_result(comm, host_name);
  return fmt::format("rank {} on {} does not see the run folder {} of rank 0 on {}", first[0], theirs, folder.string(),
                     ours);
}

}  // namespace trireme
