#include "trireme/compress/compressed_reducer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

CompressedReducer::CompressedReducer(Communicator& comm, const CompressionOptions& options,
                                     std::vector<GroupLayout> groups, std::unique_ptr<Processor> processor)
    : own_processor_(std::move(processor)), processor_(own_processor_ ? own_processor_.get() : &host_processor()) {
  check(options);
  size_t total = 0;
  for (GroupLayout& group : groups) {
    group = checked(std::move(group));
    total += group.count;
  }
  comm_ = comm.split(0, comm.rank());
  for (GroupLayout& group : groups) {
    counts_.push_back(group.count);
    const double fraction_of_gradient = total == 0 ? 1 : static_cast<double>(group.count) / static_cast<double>(total);
    exchanges_.push_back(make_exchange(*comm_, options, std::move(group), fraction_of_gradient, *processor_));
  }
  thread_ = std::thread([this] { run(); });
}

CompressedReducer::~CompressedReducer() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void CompressedReducer::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      if (job.ready) job.ready();
      exchanges_[job.group]->sum(job.values, job.step);
      processor_->finish();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    busy_ = false;
    if (error) {  // the others have gone on or given up: what follows would meet nobody
      error_ = error;
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

void CompressedReducer::start(int group, std::span<float> values, uint64_t step, std::function<void()> ready) {
  if (group < 0 || static_cast<size_t>(group) >= counts_.size()) {
    throw UsageError(fmt::format("there is no group {} to sum: the reducer has {}", group, counts_.size()),
                     "groups are counted from 0, in the order in which the reducer was given them");
  }
  const size_t wanted = counts_[static_cast<size_t>(group)];
  if (values.size() != wanted) {
    throw UsageError(fmt::format("group {} has {} elements, but was laid out with {}", group, values.size(), wanted),
                     "give it the whole group, padding included");
  }
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
  jobs_.push_back({static_cast<size_t>(group), values, step, std::move(ready)});
  report_.elements += values.size();
  report_.dense_bytes += dense_sum_bytes(values.size_bytes(), comm_->size());
  changed_.notify_all();
}

void CompressedReducer::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
  if (error_) std::rethrow_exception(error_);
}

StatePieces CompressedReducer::save() const {
  StatePieces pieces;
  for (const auto& exchange : exchanges_) exchange->save(pieces);
  return pieces;
}

void CompressedReducer::load(std::span<const StatePieces> by_rank) {
  for (const auto& exchange : exchanges_) exchange->load(by_rank);
}

void CompressedReducer::rescale(float factor) {
  for (const auto& exchange : exchanges_) exchange->rescale(factor);
}

WireReport CompressedReducer::report() const {
  WireReport report = report_;
  for (const auto& exchange : exchanges_) report.bytes_sent += exchange->bytes_sent();
  return report;
}

}  // namespace trireme
