#include "trireme/parallel/data/data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>

#include "trireme/parallel/data/broadcast.h"
#include "trireme/parallel/data/same_on_all_ranks.h"

namespace trireme {
namespace {

/// Checks that options and models agree, broadcasts rank 0's weights, and lists the parameters.
std::vector<GradientSource> agree_on_model(Communicator& comm, const torch::nn::Module& module,
                                           const DataParallelOptions& options) {
  check_same_on_all_ranks(
      comm, "DataParallelOptions",
      {fmt::format("average {}, bucket_mb {}, first_bucket_mb {}, travel_type {}, ordered {}", options.average,
                   options.bucket_mb, options.first_bucket_mb, c10::toString(options.travel_type), options.ordered)},
      "give the same options on every rank");
  broadcast_parameters(comm, module);
  std::vector<GradientSource> sources;
  add_sources(sources, module);
  if (sources.empty()) throw UsageError("the model has no parameter that needs a gradient");
  require_one_dtype(sources,
                    "gradients travel together: give all parameters one type, such as model->to(torch::kFloat32)");
  std::vector<std::string> names;
  for (const GradientSource& source : sources) names.push_back(source.name);
  check_same_on_all_ranks(comm, "list of parameters with requires_grad", names, "freeze the same ones on every rank");

  const torch::ScalarType type = sources[0].leaf.scalar_type();
  const bool is_short = options.travel_type == torch::kBFloat16 || options.travel_type == torch::kFloat16;
  if (!is_short && options.travel_type != torch::kFloat32) {
    throw UsageError(fmt::format("travel_type is {}", c10::toString(options.travel_type)),
                     "give kFloat32, kBFloat16 or kFloat16");
  }
  if (is_short && type != torch::kFloat32) {
    throw UsageError(fmt::format("travel_type is {}, but the parameters are of type {}",
                                 c10::toString(options.travel_type), c10::toString(type)),
                     "only float32 gradients are shortened: leave travel_type as it is");
  }
  return sources;
}

std::vector<StageSources> whole_model(std::vector<GradientSource> sources) {
  std::vector<StageSources> stages(1);
  stages[0].sources = std::move(sources);
  return stages;
}

int64_t bytes_of(double mebibytes) { return static_cast<int64_t>(mebibytes * (1 << 20)); }

}  // namespace

DataParallel::DataParallel(Communicator& comm, const torch::nn::Module& module, const DataParallelOptions& options)
    : DataParallel(comm, agree_on_model(comm, module, options), module.buffers(), options) {}

DataParallel::DataParallel(Communicator& comm, std::vector<GradientSource> sources, std::vector<torch::Tensor> buffers,
                           const DataParallelOptions& options)
    : comm_(comm),
      options_(options),
      buffers_(std::move(buffers)),
      has_gradient_(sources.size()),
      held_(whole_model(std::move(sources)), {},
            {.replicas = &comm,
             .gradients = {.bucket_bytes = bytes_of(options.bucket_mb),
                           .first_bucket_bytes = bytes_of(options.first_bucket_mb)}}),
      store_(*held_.stages()[0].gradients),
      reducer_(&comm, CrossRankSum{}, options.travel_type, options.ordered) {
  store_.on_gradient = [this](size_t source, const torch::Tensor&) { note_gradient(source); };
  begin(false);
}

DataParallel::~DataParallel() {
  for (size_t i = 0; i < store_.sources().size(); ++i) {
    torch::Tensor& gradient = store_.sources()[i].leaf.mutable_grad();
    if (gradient.defined() && gradient.data_ptr() == store_.gradient(0, i).data_ptr()) gradient = gradient.clone();
  }
}

void DataParallel::begin(bool add) {
  const bool travels = options_.overlap && num_guards_ == 0;
  store_.begin(0, add, travels ? [this](int bucket) { start(bucket); } : std::function<void(int)>());
}

void DataParallel::start(int bucket) {
  ++num_started_;
  torch::NoGradGuard no_grad;
  torch::Tensor values = store_.group(0, bucket);
  // Before the sum, not after it, so that a sum in float16 cannot overflow.
  const double part = options_.average ? agreed_part_.value_or(1.0 / comm_.size()) : 1.0;
  if (part == 0.0) {
    values.zero_();  // a rank without samples may have computed NaN
  } else if (part != 1.0) {
    values.mul_(part);
  }
  if (comm_.size() > 1 || has_hook_) reducer_.start(bucket, {values});
}

void DataParallel::note_gradient(size_t source) {
  if (store_.group_of(source) < num_started_) {
    throw UsageError(
        fmt::format("a second gradient of {} came after its bucket had been sent", store_.sources()[source].name),
        "hold a no_sync() guard during all backward passes but the last, or set overlap = false");
  }
  has_gradient_[source] = true;
}

void DataParallel::synchronize() {
  if (num_guards_ > 0) throw UsageError("synchronize() was called under no_sync()", "end the guard before");
  std::string unused;
  const bool has_data = !agreed_part_ || *agreed_part_ > 0;
  for (size_t i = 0; i < has_gradient_.size() && options_.unused_is_error && has_data; ++i) {
    if (!has_gradient_[i]) unused += (unused.empty() ? "" : ", ") + store_.sources()[i].name;
  }
  store_.end();
  if (!options_.overlap) {
    for (int bucket = 0; bucket < num_buckets(); ++bucket) start(bucket);
  }
  reducer_.finish();
  for (size_t i = 0; i < has_gradient_.size(); ++i) {
    // The same memory, but not a view to autograd: zero_grad() could not detach a view.
    store_.sources()[i].leaf.mutable_grad() = store_.gradient(0, i).variable_data();
    has_gradient_[i] = false;
  }
  num_started_ = 0;
  has_local_sum_ = false;
  agreed_part_.reset();
  begin(false);
  // Throw only now: other ranks have their sums, and need not wait for a rank that has failed.
  if (!unused.empty()) {
    throw UsageError("no gradient for " + unused, "freeze them with requires_grad, or leave unused_is_error off");
  }
}

DataParallel::NoSync DataParallel::no_sync() {
  if (num_started_ > 0) {
    throw UsageError("no_sync() was called after a backward pass whose gradients travel already",
                     "call it before all backward passes but the last");
  }
  if (num_guards_++ == 0) go_on();
  return NoSync(this);
}

DataParallel::NoSync::~NoSync() {
  if (owner_ != nullptr && --owner_->num_guards_ == 0) owner_->go_on();
}

/// Lets the next backward pass add to what the step has so far; buckets fill from the first again.
void DataParallel::go_on() {
  torch::NoGradGuard no_grad;
  const bool is_first = !has_local_sum_;
  has_local_sum_ |= std::find(has_gradient_.begin(), has_gradient_.end(), true) != has_gradient_.end();
  for (size_t i = 0; i < has_gradient_.size() && is_first && has_local_sum_; ++i) {
    if (!has_gradient_[i]) store_.gradient(0, i).zero_();  // still the last step's gradient
  }
  begin(has_local_sum_);
}

int64_t DataParallel::agree(int64_t num_samples) {
  if (num_samples < 0) throw UsageError(fmt::format("agree({}): a batch has no samples less than 0", num_samples));
  std::vector<int64_t> total{num_samples};
  comm_.all_reduce(total);
  if (total[0] > 0) agreed_part_ = static_cast<double>(num_samples) / static_cast<double>(total[0]);
  return total[0];
}

void DataParallel::set_hook(ReduceHook hook) {
  has_hook_ = static_cast<bool>(hook);
  reducer_.set_hook(std::move(hook));
}

void DataParallel::average_buffers() {
  std::vector<TensorHandle> handles;
  for (const torch::Tensor& buffer : buffers_) {
    handles.push_back(buffer.is_floating_point() ? start_all_reduce(comm_, buffer, ReduceOp::kAverage)
                                                 : start_broadcast(comm_, buffer));
  }
  for (TensorHandle& handle : handles) handle.wait();
}

}  // namespace trireme
