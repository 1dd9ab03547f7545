// How a rank passes the time until a peer has done something: spinning while that is cheap, then sleeping.
#pragma once

#include <atomic>
#include <cstdint>

#include "trireme/base/deadline.h"
#include "trireme/comm/control/control.h"

namespace trireme {

/// Thrown inside the communication layer; the communicator turns both into a CommError that names the operation.
struct WaitTimedOut {};
struct JobFailed {
  const Failure* failure;
};
struct WaitCancelled {};

/// Puts the caller to sleep while `word` is `expected`, at most `milliseconds`.
void sleep_on(std::atomic<uint32_t>& word, uint32_t expected, int milliseconds) noexcept;
/// Wakes all that sleep on `word`. Only needed when there are sleepers: see wake_sleepers.
void wake_all(std::atomic<uint32_t>& word) noexcept;

/// After a sequentially consistent store to `word`.
inline void wake_sleepers(std::atomic<uint32_t>& word, const std::atomic<uint32_t>& sleepers) noexcept {
  if (sleepers.load(std::memory_order_seq_cst) != 0) wake_all(word);
}

inline void pause_cpu() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// Looks for a reason why what is waited for will never come.
class Lookout {
 public:
  /// Throws it. Called only when waiting takes long.
  virtual void look() const = 0;

 protected:
  ~Lookout() = default;
};

/// The patience of one operation. Not thread-safe; made for each operation.
class Waiter {
 public:
  /// `spins`: how often to look before yielding the core; 0 when cores are scarce or the caller should stay unnoticed.
  Waiter(Clock::time_point deadline, const ControlPlane& control, const std::atomic<bool>& cancelled, int spins,
         int yields, const Lookout* lookout = nullptr)
      : deadline_(deadline),
        control_(&control),
        cancelled_(&cancelled),
        lookout_(lookout),
        spins_(spins),
        yields_(yields) {}

  /// Returns once `ready()` holds. Sleeps on `word`, which must change before `ready()` can become true.
  template <typename Ready>
  void until(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, Ready ready) const {
    if (ready()) return;
    for (int i = 0; i < spins_; ++i) {
      pause_cpu();
      if (ready()) return;
    }
    wait_longer(word, sleepers, ready);
  }

  /// Throws WaitTimedOut, JobFailed or WaitCancelled when waiting has become pointless.
  void check() const {
    if (const Failure* failure = control_->failure()) throw JobFailed{failure};
    if (Clock::now() >= deadline_) throw WaitTimedOut{};
    if (cancelled_->load(std::memory_order_relaxed)) throw WaitCancelled{};
  }
  /// The same, and whether peers are doing something else: before each sleep.
  void check_thoroughly() const {
    if (const Failure* failure = control_->failure()) throw JobFailed{failure};
    if (lookout_ != nullptr) lookout_->look();
    check();
  }

  Clock::time_point deadline() const { return deadline_; }
  int spins() const { return spins_; }
  int yields() const { return yields_; }

 private:
  template <typename Ready>
  void wait_longer(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers, Ready ready) const;

  Clock::time_point deadline_;
  const ControlPlane* control_;
  const std::atomic<bool>* cancelled_;
  const Lookout* lookout_;
  int spins_, yields_;
};

void yield_core() noexcept;

template <typename Ready>
[[gnu::noinline]] void Waiter::wait_longer(std::atomic<uint32_t>& word, std::atomic<uint32_t>& sleepers,
                                           Ready ready) const {
  for (int i = 0; i < yields_; ++i) {
    yield_core();
    if (ready()) return;
    if (i % 16 == 15) check();  // on a busy machine others may have the core for long
  }
  while (true) {
    check_thoroughly();
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    const bool done = ready();
    if (!done) sleep_on(word, seen, 50);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (done || ready()) return;
  }
}

}  // namespace trireme
