#include "trireme/runtime/parameter_store.h"

#include "trireme/tensor/mesh_tensor.h"

namespace trireme {
namespace {

constexpr int64_t kAlignment = 32;  // elements: 64 bytes in the shortest type

}  // namespace

ParameterStore::ParameterStore(const torch::nn::Module& model, torch::ScalarType compute_type)
    : compute_type_(compute_type) {
  torch::NoGradGuard no_grad;
  int64_t size = 0;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    entries_.push_back({item.key(), item.value(), {}, size, item.value().dim() >= 2});
    size += (local_part(item.value()).numel() + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto options = torch::TensorOptions().device(entries_.empty() ? torch::kCPU : entries_[0].parameter.device());
  master_ = torch::zeros({size}, options);
  if (compute_type != torch::kFloat32) compute_ = torch::zeros({size}, options.dtype(compute_type));
  for (Entry& entry : entries_) {
    const torch::Tensor part = local_part(entry.parameter);
    entry.master = master_.narrow(0, entry.offset, part.numel()).view(part.sizes());
    entry.master.copy_(part);
    const bool shortened = compute_.defined() && entry.is_matrix;
    entry.parameter.set_data(
        as_whole(entry, shortened ? compute_.narrow(0, entry.offset, part.numel()).view(part.sizes()) : entry.master));
  }
  publish();
}

int ParameterStore::find(const std::string& name) const {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

void ParameterStore::publish() {
  if (!compute_.defined()) return;
  torch::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    if (entry.is_matrix) local_part(entry.parameter).copy_(entry.master);
  }
}

torch::Tensor ParameterStore::as_whole(const Entry& entry, const torch::Tensor& part) {
  const MeshSpec* spec = mesh_spec(entry.parameter);
  return spec ? wrap_local(part, spec->mesh, spec->layout, entry.parameter.sizes()) : part;
}

size_t ParameterStore::num_bytes() const { return master_.nbytes() + (compute_.defined() ? compute_.nbytes() : 0); }

}  // namespace trireme
