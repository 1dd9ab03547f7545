#include "trireme/parallel/data/broadcast.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>
#include <sstream>

#include "trireme/parallel/data/same_on_all_ranks.h"
#include "trireme/runtime/group_reducer.h"

namespace trireme {
namespace {

/// A broadcast or gather moves plain bytes, so every dtype works.
Data bytes_of(const torch::Tensor& tensor) { return data_of(tensor.reshape({-1}).view(torch::kUInt8)); }

/// Detaches a tensor: a leaf that requires gradients cannot be written to.
torch::Tensor detached(const torch::Tensor& tensor) { return tensor.detach(); }

const char* name_of(const torch::Tensor& tensor) { return c10::toString(tensor.scalar_type()); }

bool is_empty(const torch::Tensor& tensor) { return tensor.numel() == 0; }

std::vector<std::string> describe_all(const torch::nn::Module& module) {
  std::vector<std::string> lines;
  for (const auto& item : module.named_parameters()) lines.push_back(describe(item.key(), item.value()));
  for (const auto& item : module.named_buffers()) lines.push_back("buffer " + describe(item.key(), item.value()));
  return lines;
}

}  // namespace

torch::Tensor TensorHandle::wait() {
  if (handle_.valid()) handle_.wait();
  torch::NoGradGuard no_grad;
  if (!travelling_.is_alias_of(result_)) result_.copy_(travelling_);
  return result_;
}

TensorHandle start_broadcast(Communicator& comm, const torch::Tensor& tensor, int root) {
  torch::Tensor travelling = detached(tensor).contiguous();
  if (is_empty(tensor)) return {Handle(), tensor, tensor};
  Handle handle = comm.start_broadcast(bytes_of(travelling), root);
  return {std::move(handle), tensor, std::move(travelling)};
}

void broadcast(Communicator& comm, const torch::Tensor& tensor, int root) {
  start_broadcast(comm, tensor, root).wait();
}

TensorHandle start_all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op) {
  if (tensor.scalar_type() == torch::kBool) {  // sent as bytes, whose sum could be neither true nor false
    throw UsageError("booleans have no sum", "reduce tensor.to(torch::kUInt8)");
  }
  torch::Tensor travelling = detached(tensor).contiguous();
  const Data data = data_of(travelling);
  if (is_empty(tensor)) return {Handle(), tensor, tensor};
  Handle handle = comm.start_all_reduce(data, op);
  return {std::move(handle), tensor, std::move(travelling)};
}

torch::Tensor all_reduce(Communicator& comm, const torch::Tensor& tensor, ReduceOp op) {
  return start_all_reduce(comm, tensor, op).wait();
}

TensorHandle start_all_gather(Communicator& comm, const torch::Tensor& tensor) {
  if (tensor.dim() == 0) throw UsageError("a tensor without dims cannot be gathered", "give it one: tensor.view({1})");
  const torch::Tensor own = detached(tensor).contiguous();
  const std::string row = fmt::format("rows of [{}] {}", fmt::join(own.sizes().slice(1), ", "), name_of(own));
  check_same_on_all_ranks(comm, "tensor", {row}, "only dim 0 may differ between ranks");
  const std::vector<int64_t> own_length{own.size(0)};
  std::vector<int64_t> lengths(static_cast<size_t>(comm.size()));
  comm.all_gather(own_length, lengths);

  std::vector<int64_t> shape = own.sizes().vec();
  shape[0] = 1;
  const int64_t row_bytes = c10::multiply_integers(shape) * static_cast<int64_t>(own.element_size());
  shape[0] = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  torch::Tensor all = torch::empty(shape, own.options());
  if (is_empty(all)) return {Handle(), all, all};
  std::vector<size_t> counts;
  for (const int64_t length : lengths) counts.push_back(static_cast<size_t>(length * row_bytes));
  TensorHandle handle(comm.start_all_gather_v(bytes_of(own), bytes_of(all), counts), all, all);
  handle.operand_ = own;
  return handle;
}

torch::Tensor all_gather(Communicator& comm, const torch::Tensor& tensor) {
  return start_all_gather(comm, tensor).wait();
}

void broadcast_parameters(Communicator& comm, const torch::nn::Module& module, int root) {
  check_same_on_all_ranks(comm, "model", describe_all(module), "build the same model on every rank");
  std::vector<TensorHandle> handles;
  for (const torch::Tensor& parameter : module.parameters()) handles.push_back(start_broadcast(comm, parameter, root));
  for (const torch::Tensor& buffer : module.buffers()) handles.push_back(start_broadcast(comm, buffer, root));
  for (TensorHandle& handle : handles) handle.wait();
}

void broadcast_optimizer_state(Communicator& comm, torch::optim::Optimizer& optimizer, int root) {
  std::vector<std::string> lines;
  for (size_t group = 0; group < optimizer.param_groups().size(); ++group) {
    const std::vector<torch::Tensor>& parameters = optimizer.param_groups()[group].params();
    for (size_t i = 0; i < parameters.size(); ++i) {
      lines.push_back(describe(fmt::format("parameter {} of group {}", i, group), parameters[i]));
    }
  }
  check_same_on_all_ranks(comm, "optimizer", lines, "give the optimizer the same parameters on every rank");

  std::ostringstream saved;
  if (comm.rank() == root) torch::save(optimizer, saved);
  const std::string bytes = broadcast_text(comm, saved.str(), root);
  if (comm.rank() == root) return;
  optimizer.state().clear();  // loading does not remove what the root does not have
  std::istringstream stream(bytes);
  torch::load(optimizer, stream);
}

std::string describe(const std::string& name, const torch::Tensor& tensor) {
  return fmt::format("{} [{}] {}", name, fmt::join(tensor.sizes(), ", "), name_of(tensor));
}

}  // namespace trireme
