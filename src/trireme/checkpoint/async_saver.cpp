#include "trireme/checkpoint/async_saver.h"

#include <fmt/format.h>

#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "something that is no exception was thrown";
  }
}

void write(SaveRequest& request) {
  std::vector<ShardTensor> tensors;
  for (const SnapshotTensor& part : request.tensors) {
    tensors.push_back({part.tensor.view(), part.group, part.first_row, part.full_rows});
  }
  write_shard(request.place, request.shard, request.num_shards, tensors);
}

/// What went wrong, or nothing.
std::exception_ptr save(SaveRequest& request) {
  std::exception_ptr failure;
  try {
    write(request);
  } catch (...) {
    failure = std::current_exception();
  }
  std::vector<SnapshotTensor>().swap(request.tensors);
  if (!request.completion) return failure;
  try {
    request.completion(failure);
  } catch (...) {
    if (!failure) failure = std::current_exception();
  }
  request.completion = nullptr;  // what it holds, such as a PendingCheckpoint, ends in the background, too
  return failure;
}

}  // namespace

AsyncSaver::AsyncSaver() : thread_([this] { run(); }) {}

AsyncSaver::~AsyncSaver() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (error_) log_error("a checkpoint was not saved: {}", text_of(error_));
}

void AsyncSaver::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return request_ || ending_; });
    if (!request_) return;
    SaveRequest request = std::move(*request_);
    lock.unlock();
    std::exception_ptr failure = save(request);
    lock.lock();
    if (failure) error_ = std::move(failure);
    request_.reset();
    changed_.notify_all();
  }
}

void AsyncSaver::throw_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void AsyncSaver::wait_until_free(std::unique_lock<std::mutex>& lock, Deadline deadline) {
  if (!changed_.wait_until(lock, deadline.at(), [this] { return !request_; })) {
    throw Error(fmt::format("writing {} takes too long: the disk may hang", target_.string()),
                "look at the system's log, or save to another disk: --observe.run_dir FOLDER");
  }
  throw_error();
}

void AsyncSaver::start(SaveRequest request, Deadline deadline) {
  std::unique_lock lock(mutex_);
  throw_error();
  wait_until_free(lock, deadline);
  target_ = request.place.final();
  request_ = std::move(request);
  lock.unlock();
  changed_.notify_all();
}

bool AsyncSaver::busy() const {
  const std::lock_guard lock(mutex_);
  return request_.has_value();
}

void AsyncSaver::wait(Deadline deadline) {
  std::unique_lock lock(mutex_);
  wait_until_free(lock, deadline);
}

}  // namespace trireme
