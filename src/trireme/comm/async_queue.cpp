#include "trireme/comm/async_queue.h"

#include <fmt/format.h>

#include "trireme/comm/rank_context.h"

namespace trireme {

void Handle::State::finish(std::exception_ptr result) {
  {
    std::lock_guard lock(mutex);
    done = true;
    error = std::move(result);
  }
  changed.notify_all();
}

bool Handle::test() {
  if (!state_) return true;
  if (state_->ticket && state_->ticket->done.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Handle::wait(std::chrono::milliseconds timeout) {
  if (!state_) return;
  State& state = *state_;
  if (timeout.count() == 0) timeout = state.timeout;
  const Clock::time_point deadline = Clock::now() + timeout;
  std::unique_lock lock(state.mutex);
  while (!state.done && !(state.ticket && state.ticket->done.load(std::memory_order_acquire))) {
    if (state.changed.wait_until(lock, deadline) == std::cv_status::timeout && Clock::now() >= deadline) {
      const auto& [context, digest, peer] = state.what;
      throw CommError(fmt::format("{} waited {:.1f} s for {}{}, which is not done and goes on",
                                  context->describe(context->rank), static_cast<double>(timeout.count()) / 1000,
                                  describe(digest), peer < 0 ? "" : " with " + context->describe(peer)),
                      -1);
    }
  }
  if (state.error) std::rethrow_exception(state.error);
}

void AsyncQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&operations_thread_, &pump_thread_}) {
    if (thread->joinable()) thread->join();
  }
}

Handle AsyncQueue::add(std::function<void()> operation, std::chrono::milliseconds timeout, Handle::State::What what) {
  auto state = std::make_shared<Handle::State>();
  state->what = std::move(what);
  // A handle waits longer than its operation may take, so that the operation itself says what is wrong.
  state->timeout = timeout * 2 + std::chrono::seconds(10);
  {
    std::lock_guard lock(mutex_);
    if (!operations_thread_.joinable()) operations_thread_ = std::thread([this] { run_operations(); });
    pending_.fetch_add(1, std::memory_order_acq_rel);
    operations_.emplace_back(std::move(operation), state);
  }
  changed_.notify_all();
  return Handle(std::move(state));
}

void AsyncQueue::nudge() {
  {
    std::lock_guard lock(mutex_);
    if (!pump_thread_.joinable()) pump_thread_ = std::thread([this] { run_pump(); });
    pumping_ = true;
  }
  changed_.notify_all();
}

void AsyncQueue::run_operations() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !operations_.empty(); });
    if (stopping_) break;
    auto [operation, state] = std::move(operations_.front());
    operations_.pop_front();
    lock.unlock();
    std::exception_ptr error;
    try {
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    operation = nullptr;
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    state->finish(std::move(error));
    lock.lock();
  }
  for (auto& [operation, state] : operations_) {
    state->finish(std::make_exception_ptr(CommError("the communicator was closed before the operation began", -1)));
  }
  operations_.clear();
}

void AsyncQueue::run_pump() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || pumping_; });
    if (stopping_) break;
    pumping_ = false;
    lock.unlock();
    const bool more = pump_();
    lock.lock();
    pumping_ = pumping_ || more;
  }
}

}  // namespace trireme
