#include "trireme/runtime/mesh_messages.h"

#include "trireme/base/error.h"
#include "trireme/layout/redistribution.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {
namespace {

using Sizes = std::vector<int64_t>;

constexpr uint32_t kFirstTagOutside = 0xfff00000;  // above the tags of programs

Sizes part_sizes(const ParcelItem& item, const std::vector<Placement>& placements, const DeviceMesh& mesh) {
  return local_sizes(item.sizes, placements, mesh.axis_sizes(), mesh.coordinates());
}

torch::Tensor box_of(torch::Tensor part, const Sizes& first, const Sizes& lengths) {
  for (size_t dim = 0; dim < first.size(); ++dim) {
    part = part.narrow(static_cast<int64_t>(dim), first[dim], lengths[dim]);
  }
  return part;
}

std::vector<ParcelItem> with_dimensions(std::vector<ParcelItem> items) {
  for (ParcelItem& item : items) {
    if (item.sizes.empty()) item.sizes = {1};
  }
  return items;
}

torch::Tensor joined(const std::vector<torch::Tensor>& flat) { return flat.size() == 1 ? flat[0] : torch::cat(flat); }

}  // namespace

ParcelRoute::ParcelRoute(std::vector<ParcelItem> items, MeshPlace from, MeshPlace to, torch::TensorOptions options)
    : items_(with_dimensions(std::move(items))), from_(std::move(from)), to_(std::move(to)), options_(options) {
  for (const ParcelItem& item : items_) {
    plans_.push_back(plan_resharding({from_.axis_sizes, item.from}, {to_.axis_sizes, item.to}, item.sizes));
    std::erase_if(plans_.back().messages, [&](const ReshardMessage& message) {
      return !item.travels ||
             !((from_.mesh && from_.mesh->rank() == message.from) || (to_.mesh && to_.mesh->rank() == message.to));
    });
    if (!to_.mesh) continue;
    for (const ReshardMessage& message : plans_.back().messages) {
      expected_[from_.first_rank + message.from] += message.count();
    }
  }
}

std::map<int, torch::Tensor> ParcelRoute::pack(const torch::Tensor& parcel) const {
  std::map<int, std::vector<torch::Tensor>> pieces;
  const torch::Tensor flat = parcel.contiguous();
  int64_t at = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ParcelItem& item = items_[i];
    const Sizes sizes = part_sizes(item, item.from, *from_.mesh);
    const int64_t count = c10::multiply_integers(sizes);
    const torch::Tensor part = flat.narrow(0, at, count).view(sizes);
    at += count;
    if (!item.travels) continue;
    const torch::Tensor slice = redistribute_local(part, *from_.mesh, *from_.mesh->layout(item.from, item.sizes),
                                                   *from_.mesh->layout(plans_[i].sent, item.sizes), item.sizes);
    for (const ReshardMessage& message : plans_[i].messages) {
      for (const ReshardBox& box : message.boxes) {
        pieces[to_.first_rank + message.to].push_back(box_of(slice, box.from, box.lengths).reshape({-1}));
      }
    }
  }
  std::map<int, torch::Tensor> packed;
  for (const auto& [rank, list] : pieces) packed[rank] = joined(list).contiguous();
  return packed;
}

torch::Tensor ParcelRoute::unpack(const std::map<int, torch::Tensor>& arrived) const {
  std::map<int, int64_t> at;
  std::vector<torch::Tensor> parts;
  for (size_t i = 0; i < items_.size(); ++i) {
    const ParcelItem& item = items_[i];
    if (!item.travels) {
      parts.push_back(torch::zeros(part_sizes(item, item.to, *to_.mesh), options_).reshape({-1}));
      continue;
    }
    const torch::Tensor received = torch::empty(part_sizes(item, plans_[i].received, *to_.mesh), options_);
    for (const ReshardMessage& message : plans_[i].messages) {
      const int rank = from_.first_rank + message.from;
      for (const ReshardBox& box : message.boxes) {
        box_of(received, box.to, box.lengths)
            .copy_(arrived.at(rank).narrow(0, at[rank], box.count()).view(box.lengths));
        at[rank] += box.count();
      }
    }
    parts.push_back(redistribute_local(received, *to_.mesh, *to_.mesh->layout(plans_[i].received, item.sizes),
                                       *to_.mesh->layout(item.to, item.sizes), item.sizes)
                        .reshape({-1}));
  }
  return joined(parts);
}

MeshMessages::MeshMessages(Communicator& comm, int num_micro_batches, torch::Device device)
    : comm_(comm), device_(device), num_micro_batches_(static_cast<uint32_t>(num_micro_batches)) {}

void MeshMessages::set_route(bool is_gradient, int stage, ParcelRoute route) {
  routes_.emplace(std::pair(is_gradient, stage), std::move(route));
}

const ParcelRoute& MeshMessages::route_of(const PipelineMessage& message) const {
  return routes_.at({message.is_gradient, message.stage});
}

uint32_t MeshMessages::tag_of(const PipelineMessage& message, size_t tensor) const {
  const auto stage = static_cast<uint32_t>(message.stage), micro_batch = static_cast<uint32_t>(message.micro_batch);
  return ((stage * num_micro_batches_ + micro_batch) * 2 + (message.is_gradient ? 1 : 0)) *
             static_cast<uint32_t>(kMostTensors) +
         static_cast<uint32_t>(tensor);
}

void MeshMessages::limit_sent(size_t most) {
  for (; sent_.size() > most; sent_.erase(sent_.begin())) sent_.front().handle.wait_on(current_stream(device_));
}

void MeshMessages::keep_until_sent(Handle handle, const torch::Tensor& tensor) {
  std::erase_if(sent_, [](Sent& sent) {
    if (!sent.handle.test()) return false;
    sent.handle.wait();  // throws if the send failed
    return true;
  });
  sent_.push_back({std::move(handle), tensor});
}

void MeshMessages::start_sends(const ParcelRoute& route, const torch::Tensor& parcel, uint32_t tag) {
  for (const auto& [rank, tensor] : route.pack(parcel)) {
    keep_until_sent(comm_.start_send(data_of(tensor), rank, tag, call_options(device_)), tensor);
  }
}

void MeshMessages::expect(const PipelineMessage& message, const ParcelRoute& route, uint32_t tag, size_t tensor) {
  Arriving& arriving = arriving_[{message, tensor}];
  for (const auto& [rank, count] : route.expected()) {
    const torch::Tensor& part = arriving.tensors[rank] = torch::empty({count}, route.options());
    arriving.handles.push_back(comm_.start_recv(data_of(part), rank, tag, call_options(device_)));
  }
}

torch::Tensor MeshMessages::wait_for(const ParcelRoute& route, const PipelineMessage& message, size_t tensor) {
  const auto found = arriving_.find({message, tensor});
  if (found == arriving_.end()) throw Error("a message is used that was not posted");
  for (Handle& handle : found->second.handles) handle.wait_on(current_stream(device_));
  return route.unpack(arriving_.extract(found).mapped().tensors);
}

void MeshMessages::send(const PipelineMessage& message, int, const Tensors& parcel) {
  start_sends(route_of(message), parcel.at(0), tag_of(message));
}

void MeshMessages::post_receive(const PipelineMessage& message, int) {
  expect(message, route_of(message), tag_of(message));
}

Tensors MeshMessages::take(const PipelineMessage& message) { return {wait_for(route_of(message), message)}; }

void MeshMessages::finish() {
  for (Sent& sent : sent_) sent.handle.wait_on(current_stream(device_));
  sent_.clear();
}

void MeshMessages::send_now(const ParcelRoute& route, const torch::Tensor& parcel, int number) {
  start_sends(route, parcel, kFirstTagOutside + static_cast<uint32_t>(number));
  finish();
}

torch::Tensor MeshMessages::receive_now(const ParcelRoute& route, int number) {
  const PipelineMessage message{false, -1, number};
  expect(message, route, kFirstTagOutside + static_cast<uint32_t>(number));
  return wait_for(route, message);
}

}  // namespace trireme
