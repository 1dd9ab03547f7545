#include "trireme/server/settings.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/optimizer/kernels.h"

namespace trireme::server {

void check(const Settings& settings, int num_servers) {
  if (num_servers < 1 || num_servers > 1024) {
    throw UsageError(fmt::format("{} parameter servers", num_servers), "give 1 to 1024");
  }
  if (settings.num_workers < 1 || settings.num_workers > 4096) {
    throw UsageError(fmt::format("{} workers of a parameter server", settings.num_workers), "give 1 to 4096");
  }
  if (settings.num_leaves < 0) {
    throw UsageError(fmt::format("a tree of sums with {} leaves", settings.num_leaves),
                     "give 0: a leaf for each worker");
  }
  if (settings.staleness_bound < 0) {
    throw UsageError(fmt::format("the bound of staleness is {}, below 0", settings.staleness_bound),
                     "give 0 (wait for everybody) or more clocks");
  }
  if (settings.mode != Mode::kBounded && settings.staleness_bound != 0) {
    throw UsageError(fmt::format("a bound of staleness of {} has no meaning in the {} mode", settings.staleness_bound,
                                 name_of(settings.mode)),
                     "choose the bounded mode, or leave the bound out");
  }
  if (settings.mode != Mode::kSynchronous && settings.commits) {
    throw UsageError(fmt::format("the {} mode has no rounds whose norm could be asked for", name_of(settings.mode)),
                     "clip gradients in the synchronous mode, or on each worker");
  }
  if (settings.replicate && num_servers < 2) {
    throw UsageError("one server cannot be its own replica", "start two servers or more, or switch replication off");
  }
  if (settings.piece_elements == 0 || settings.piece_elements % kSquaresBlock != 0 ||
      settings.piece_elements > (size_t{1} << 22)) {
    throw UsageError(fmt::format("pieces of {} elements", settings.piece_elements),
                     fmt::format("give a multiple of {}, at most {}", kSquaresBlock, size_t{1} << 22));
  }
}

}  // namespace trireme::server
