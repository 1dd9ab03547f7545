// One NCCL communicator, made, used and ended without ever blocking for longer than its caller allows.
//
// All calls are non-blocking ones (config.blocking = 0): NCCL works on in a thread of its own, and settle() looks
// whether it is done. The end is always ncclCommAbort, on a thread that nobody has to wait for: it may wait for
// kernels.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "trireme/base/deadline.h"

namespace trireme {

/// Thread-safe.
class NcclLink {
 public:
  /// Called now and then while NCCL works; throws to give up, after which the communicator is aborted.
  using Check = std::function<void()>;

  static ncclUniqueId make_id();
  /// Collective among all that have the id.
  static std::unique_ptr<NcclLink> make(const ncclUniqueId& id, int size, int rank, const Check& check);
  /// Collective among the members of this one; null for a negative colour.
  std::unique_ptr<NcclLink> split(int color, int key, const Check& check);
  ~NcclLink() { abort(); }
  NcclLink(const NcclLink&) = delete;

  /// Runs `body(ncclComm_t)`, which makes NCCL calls and returns the first result that is no success, and settles.
  /// Throws Error that names `what` and NCCL's words, or what `check` throws.
  void call(const char* what, const Check& check, const std::function<ncclResult_t(ncclComm_t)>& body);
  /// Throws Error when NCCL has noticed a failure.
  void check_health();
  /// Ends everything under way. Returns within seconds; more calls do nothing.
  void abort() noexcept;

 private:
  explicit NcclLink(ncclComm_t comm) : comm_(comm) {}
  void settle(ncclResult_t result, const char* what, const Check& check);
  ncclResult_t state(const char* what);

  std::timed_mutex mutex_;  // for every call but the abort, which must get through
  ncclComm_t comm_;
  std::optional<Clock::time_point> first_failure_;  // that NCCL told of
};

}  // namespace trireme
