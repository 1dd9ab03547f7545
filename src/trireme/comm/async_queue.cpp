#include "trireme/comm/async_queue.h"

#include <fmt/format.h>

#include <algorithm>

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

void Handle::State::set_enqueued() {
  {
    std::lock_guard lock(mutex);
    enqueued = true;
  }
  changed.notify_all();
}

bool Handle::test() {
  if (!state_) return true;
  if (state_->ticket && state_->ticket->done.load(std::memory_order_acquire)) return true;
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

namespace {

/// Waits for `ready()`, which holds the state's lock; `nap` at most between two looks.
template <typename Ready>
void wait_for(Handle::State& state, std::unique_lock<std::mutex>& lock, std::chrono::milliseconds timeout,
              Clock::duration nap, Ready ready) {
  const Clock::time_point deadline = Clock::now() + timeout;
  while (!ready()) {
    const Clock::time_point next = nap.count() > 0 ? std::min(deadline, Clock::now() + nap) : deadline;
    if (state.changed.wait_until(lock, next) == std::cv_status::timeout && Clock::now() >= deadline) {
      const auto& [context, digest, peer] = state.what;
      throw CommError(fmt::format("{} waited {:.1f} s for {}{}, which is not done and goes on",
                                  context->describe(context->rank), static_cast<double>(timeout.count()) / 1000,
                                  describe(digest), peer < 0 ? "" : " with " + context->describe(peer)),
                      -1);
    }
  }
}

}  // namespace

void Handle::wait(std::chrono::milliseconds timeout) {
  if (!state_) return;
  State& state = *state_;
  if (timeout.count() == 0) timeout = state.timeout;
  std::unique_lock lock(state.mutex);
  if (state.task) {
    // Whoever waits looks for itself, oftener than the thread that watches. What goes wrong is that thread's to say.
    const auto done = [&] {
      if (state.done || !state.enqueued) return state.done;
      try {
        return state.task->is_done();
      } catch (...) {
        return false;
      }
    };
    wait_for(state, lock, timeout, std::chrono::microseconds(20), done);
  } else {
    wait_for(state, lock, timeout, {},
             [&] { return state.done || (state.ticket && state.ticket->done.load(std::memory_order_acquire)); });
  }
  if (state.error) std::rethrow_exception(state.error);
}

void Handle::wait_on(void* stream) {
  if (!state_ || !state_->task) return wait();
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  wait_for(state, lock, state.timeout, {}, [&] { return state.done || state.enqueued; });
  if (state.error) std::rethrow_exception(state.error);
  state.task->wait_on(stream);
}

void AsyncQueue::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread* thread : {&operations_thread_, &pump_thread_, &watch_thread_}) {
    if (thread->joinable()) thread->join();
  }
}

Handle AsyncQueue::add(std::function<void()> operation, std::chrono::milliseconds timeout, Handle::State::What what,
                       std::shared_ptr<GpuTask> task) {
  auto state = std::make_shared<Handle::State>();
  state->what = std::move(what);
  state->task = std::move(task);
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

Handle AsyncQueue::add(std::shared_ptr<GpuTask> task, std::chrono::milliseconds timeout, Handle::State::What what) {
  auto state = std::make_shared<Handle::State>();
  state->what = std::move(what);
  state->timeout = timeout * 2 + std::chrono::seconds(10);
  state->enqueued = task->is_enqueued();
  state->task = std::move(task);
  watch(state);
  return Handle(std::move(state));
}

void AsyncQueue::watch(std::shared_ptr<Handle::State> state) {
  {
    std::lock_guard lock(mutex_);
    if (!watch_thread_.joinable()) watch_thread_ = std::thread([this] { run_watch(); });
    watched_.push_back(std::move(state));
  }
  changed_.notify_all();
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
    if (state->task && !error) {
      state->set_enqueued();
      watch(std::move(state));
    } else {
      state->finish(std::move(error));
    }
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

void AsyncQueue::run_watch() {
  // Between two rounds it sleeps a little longer each time, until something has ended.
  constexpr std::chrono::microseconds kShortest(20), kLongest(300);
  std::vector<std::shared_ptr<Handle::State>> states;
  std::chrono::microseconds pause = kShortest;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (states.empty()) changed_.wait(lock, [&] { return stopping_ || !watched_.empty(); });
      if (!watched_.empty()) pause = kShortest;
      states.insert(states.end(), watched_.begin(), watched_.end());
      watched_.clear();
      if (states.empty()) return;  // stopping: the communicator has given its tasks the time that they get
    }
    const size_t before = states.size();
    std::erase_if(states, [this](const std::shared_ptr<Handle::State>& state) {
      try {
        const bool done = watch_(*state->task);
        if (!state->enqueued && state->task->is_enqueued()) state->set_enqueued();
        if (!done) return false;
        state->finish(nullptr);
      } catch (...) {
        state->finish(std::current_exception());
      }
      return true;
    });
    if (states.size() != before) pause = kShortest;
    if (states.empty()) continue;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 3 / 2, kLongest);
  }
}

}  // namespace trireme
