#include "trireme/comm/cuda/nccl_link.h"

#include <fmt/format.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr auto kAbortPatience = std::chrono::seconds(3);
constexpr auto kTimeToBeNamed = std::chrono::milliseconds(1500);

[[noreturn]] void throw_error(ncclResult_t result, const char* what, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  throw Error(fmt::format("{} failed: {}{}{}", what, ncclGetErrorString(result),
                          last != nullptr && *last != '\0' ? ": " : "", last != nullptr ? last : ""),
              "NCCL_DEBUG=WARN makes NCCL say more");
}

bool is_under_way(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

}  // namespace

ncclUniqueId NcclLink::make_id() {
  ncclUniqueId id;
  const ncclResult_t result = ncclGetUniqueId(&id);
  if (result != ncclSuccess) throw_error(result, "ncclGetUniqueId", nullptr);
  return id;
}

std::unique_ptr<NcclLink> NcclLink::make(const ncclUniqueId& id, int size, int rank, const Check& check) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, size, id, rank, &config);
  if (!is_under_way(result)) throw_error(result, "ncclCommInitRankConfig", nullptr);
  std::unique_ptr<NcclLink> link(new NcclLink(comm));
  link->settle(result, "ncclCommInitRankConfig", check);
  return link;
}

std::unique_ptr<NcclLink> NcclLink::split(int color, int key, const Check& check) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  call("ncclCommSplit", check, [&](ncclComm_t parent) {
    return ncclCommSplit(parent, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &comm, &config);
  });
  if (comm == nullptr) return nullptr;
  std::unique_ptr<NcclLink> link(new NcclLink(comm));
  link->settle(ncclInProgress, "ncclCommSplit", check);
  return link;
}

ncclResult_t NcclLink::state(const char* what) {
  std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw Error(fmt::format("{} was given up: NCCL has been aborted", what));
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
  if (asked != ncclSuccess) throw_error(asked, "ncclCommGetAsyncError", comm_);
  if (is_under_way(state)) return state;
  // When a rank dies NCCL sees a broken socket at once; a little later the job knows whose it was, which is worth more.
  const Clock::time_point now = Clock::now();
  if (!first_failure_) first_failure_ = now;
  if (now - *first_failure_ > kTimeToBeNamed) throw_error(state, what, comm_);
  return ncclInProgress;
}

void NcclLink::settle(ncclResult_t result, const char* what, const Check& check) {
  const Clock::time_point start = Clock::now();
  for (int looks = 0; state(what) == ncclInProgress || !is_under_way(result); ++looks) {
    check();
    if (!is_under_way(result) && Clock::now() - start > kTimeToBeNamed) {
      std::lock_guard lock(mutex_);
      throw_error(result, what, comm_);
    }
    if (looks < 200) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
}

void NcclLink::call(const char* what, const Check& check, const std::function<ncclResult_t(ncclComm_t)>& body) {
  ncclResult_t result = ncclSuccess;
  {
    std::lock_guard lock(mutex_);
    if (comm_ == nullptr) throw Error(fmt::format("{} was given up: NCCL has been aborted", what));
    result = body(comm_);
  }
  settle(result, what, check);
}

void NcclLink::check_health() { state("an operation"); }

void NcclLink::abort() noexcept {
  try {
    // Whoever holds the mutex is inside NCCL, which should return at once; the abort does not depend on it.
    std::unique_lock lock(mutex_, kAbortPatience);
    const ncclComm_t comm = std::exchange(comm_, nullptr);
    if (lock.owns_lock()) lock.unlock();
    if (comm == nullptr) return;
    auto ended = std::make_shared<std::promise<void>>();
    std::future<void> end = ended->get_future();
    std::thread([comm, ended] {
      ncclCommAbort(comm);
      ended->set_value();
    }).detach();
    end.wait_for(kAbortPatience);
  } catch (const std::exception&) {
    // No thread, no abort: the process is at its limits, and ends soon.
  }
}

}  // namespace trireme
