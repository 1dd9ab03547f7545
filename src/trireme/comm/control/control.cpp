#include "trireme/comm/control/control.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/control/control_failure.h"
#include "trireme/comm/control/control_join.h"

namespace trireme {
namespace {

/// A world of one: no socket, no thread.
class AloneControl final : public ControlPlane {
 public:
  explicit AloneControl(Member self) : members_{std::move(self)} {}

  const std::vector<Member>& members() const override { return members_; }
  RankProgress& progress() override { return progress_; }
  const Failure* failure() const noexcept override { return failure_.first(); }
  void report(const Failure& failure) noexcept override {
    try {
      failure_.set(failure);
    } catch (...) {  // out of memory
    }
  }
  std::vector<RankStatus> survey(Deadline) override {
    return {{0, 0.0, progress_.group, progress_.sequence, progress_.step, progress_.operation}};
  }
  Socket connect(int peer, uint64_t, Deadline) override {
    throw UsageError(fmt::format("rank 0 cannot connect to rank {}: it is alone in its world", peer));
  }
  std::optional<Socket> accept(int, uint64_t) override { return std::nullopt; }
  void leave() noexcept override {}

 private:
  const std::vector<Member> members_;
  RankProgress progress_;
  control::FirstFailure failure_;
};

void check(const LaunchEnvironment& environment, const ControlOptions& options) {
  if (environment.size < 1 || environment.size > control::kMaxWorldSize) {
    throw UsageError(fmt::format("a world of {} ranks cannot be", environment.size),
                     fmt::format("It has from 1 to {}.", control::kMaxWorldSize));
  }
  if (environment.rank < 0 || environment.rank >= environment.size) {
    throw UsageError(fmt::format("rank {} is outside the world of {} ranks", environment.rank, environment.size),
                     fmt::format("Ranks go from 0 to {}.", environment.size - 1));
  }
  if (options.heartbeat_interval <= Clock::duration::zero() || options.silence_limit < 2 * options.heartbeat_interval) {
    throw UsageError("the silence limit must be at least twice the heartbeat interval");
  }
  if (environment.size == 1) return;
  if (environment.master_address.empty() || environment.master_ports.empty()) {
    throw UsageError("nobody said where rank 0 is", "Set MASTER_ADDR and MASTER_PORT for all ranks.");
  }
  if (environment.token.empty() && !is_loopback(environment.master_address)) {
    throw UsageError(fmt::format("a job beyond loopback (rank 0 is at {}) needs a token", environment.master_address),
                     "Set TRIREME_TOKEN or TRIREME_TOKEN_FILE, the same for all ranks: "
                     "export TRIREME_TOKEN=$(head -c 32 /dev/urandom | base64)");
  }
}

}  // namespace

std::unique_ptr<ControlPlane> ControlPlane::join(const LaunchEnvironment& environment, Member self,
                                                 const ControlOptions& options) {
  check(environment, options);
  self.rank = environment.rank;
  if (environment.size == 1) return std::make_unique<AloneControl>(std::move(self));
  return std::make_unique<control::RankControl>(control::join_job(environment, std::move(self), options), options);
}

}  // namespace trireme
