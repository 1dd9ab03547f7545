#include "trireme/runtime/lane_messages.h"

#include "trireme/base/error.h"
#include "trireme/layout/redistribution.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
namespace {

constexpr uint32_t kFormTag = 0xffe00000;  // above the tags of programs, below MeshMessages' own

Program without_instructions(Program program) {
  program.instructions.clear();
  return program;
}

}  // namespace

LaneMessages::LaneMessages(Communicator& comm, Layout layout, std::shared_ptr<DeviceMesh> mesh, Program program,
                           torch::Device device, bool any_shapes)
    : MeshMessages(comm, program.num_micro_batches, device),
      layout_(std::move(layout)),
      mesh_(std::move(mesh)),
      program_(without_instructions(std::move(program))),
      own_stage_(program_.pipeline_rank),
      own_replica_((comm.rank() - first_rank_of(own_stage_)) / tp_of(own_stage_)),
      any_shapes_(any_shapes) {}

std::vector<Placement> LaneMessages::placements(int number, const TensorForm& form) const {
  return {layout_.sequence && tp_of(number) > 1 && form.sizes.size() == 3 ? Placement::shard(1)
                                                                          : Placement::replicate()};
}

/// Forms of whole tensors, from the forms of this rank's parts.
TensorForms LaneMessages::whole_of(TensorForms parts) const {
  for (TensorForm& part : parts) {
    if (!placements(own_stage_, part)[0].is_shard()) continue;
    part.sizes[1] = sequence_ > 0 ? sequence_ : part.sizes[1] * tp_of(own_stage_);
  }
  return parts;
}

MeshPlace LaneMessages::place_of(int number, int replica) const {
  const int tp = tp_of(number);
  const bool is_own = number == own_stage_ && replica == own_replica_;
  return {first_rank_of(number) + replica * tp, {tp}, is_own ? mesh_ : nullptr};
}

ParcelRoute LaneMessages::make_route(const MeshPlace& from, int from_stage, const MeshPlace& to, int to_stage,
                                     const TensorForm& form) const {
  return {{{form.sizes, placements(from_stage, form), placements(to_stage, form)}},
          from,
          to,
          torch::TensorOptions().dtype(form.type).device(device_)};
}

/// The route to or from a replica of a neighbouring stage.
const ParcelRoute& LaneMessages::route_of(bool is_gradient, int replica, bool sends, const TensorForm& form,
                                          size_t tensor) {
  const std::tuple key(is_gradient, replica, sends, tensor);
  if (any_shapes_) routes_.erase(key);
  const auto known = routes_.find(key);
  if (known != routes_.end()) return known->second;
  const int other = own_stage_ + (is_gradient == sends ? -1 : 1);
  const MeshPlace here = place_of(own_stage_, own_replica_), there = place_of(other, replica);
  return routes_
      .emplace(key, sends ? make_route(here, own_stage_, there, other, form)
                          : make_route(there, other, here, own_stage_, form))
      .first->second;
}

/// The first rank of a replica sends the forms to every rank that receives.
void LaneMessages::send_forms(const TensorForms& forms, const MeshPlace& to, uint32_t tag) {
  if (mesh_->rank() > 0) return;
  const torch::Tensor numbers = forms_to_numbers(forms);
  for (int i = 0; i < to.axis_sizes[0]; ++i) {
    keep_until_sent(comm_.start_send(data_of(numbers), to.first_rank + i, tag), numbers);
  }
}

torch::Tensor LaneMessages::shaped(const torch::Tensor& flat, const TensorForm& form) const {
  return flat.view(local_sizes(form.sizes, placements(own_stage_, form), mesh_->axis_sizes(), mesh_->coordinates()));
}

void LaneMessages::send(const PipelineMessage& message, int, const Tensors& tensors) {
  if (any_shapes_) limit_sent(kMostAhead * kMostTensors);
  const int replica = program_.replica_with(message.micro_batch, message.stage);
  const TensorForms forms = whole_of(forms_of(tensors));
  if (!message.is_gradient && (told_.insert(replica).second || any_shapes_)) {
    send_forms(forms, place_of(message.stage, replica), kFormTag);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    start_sends(route_of(message.is_gradient, replica, true, forms[i], i), tensors[i].reshape({-1}),
                tag_of(message, i));
  }
}

/// The replica that sends a message.
int LaneMessages::source_of(const PipelineMessage& message) const {
  return program_.replica_with(message.micro_batch, message.stage + (message.is_gradient ? 1 : -1));
}

LaneMessages::Line& LaneMessages::line_of(const PipelineMessage& message) {
  return lines_[{message.is_gradient, source_of(message)}];
}

void LaneMessages::post_line(Line& line) {
  while (!line.waiting.empty()) {
    const PipelineMessage message = line.waiting.front();
    for (size_t i = 0; i < line.forms->size(); ++i) {
      expect(message, route_of(message.is_gradient, source_of(message), false, (*line.forms)[i], i), tag_of(message, i),
             i);
    }
    line.waiting.pop_front();
  }
}

void LaneMessages::post_receive(const PipelineMessage& message, int) {
  if (any_shapes_) return;
  Line& line = line_of(message);
  line.waiting.push_back(message);
  if (message.is_gradient && !line.forms) line.forms = gradients_;
  if (line.forms) return post_line(line);
  if (message.is_gradient || line.numbers.defined()) return;
  line.numbers = empty_forms();
  const MeshPlace from = place_of(message.stage - 1, source_of(message));
  line.handle = comm_.start_recv(data_of(line.numbers), from.first_rank, kFormTag);
}

TensorForms LaneMessages::receive_forms(const PipelineMessage& message) {
  const torch::Tensor numbers = empty_forms();
  comm_.start_recv(data_of(numbers), place_of(message.stage - 1, source_of(message)).first_rank, kFormTag).wait();
  return forms_from_numbers(numbers);
}

Tensors LaneMessages::take(const PipelineMessage& message) {
  Line& line = line_of(message);
  if (any_shapes_) {
    line.forms = receive_forms(message);
    line.waiting.push_back(message);
  } else if (!line.forms) {
    if (message.is_gradient) {
      line.forms = gradients_;
      if (!line.forms) throw Error("a gradient comes before its activation was computed");
    } else {
      if (!line.numbers.defined()) throw Error("a message is used that was not posted");
      line.handle.wait();
      line.forms = forms_from_numbers(line.numbers);
    }
  }
  post_line(line);
  Tensors tensors;
  for (size_t i = 0; i < line.forms->size(); ++i) {
    const TensorForm& form = (*line.forms)[i];
    const ParcelRoute& route = route_of(message.is_gradient, source_of(message), false, form, i);
    tensors.push_back(shaped(wait_for(route, message, i), form));
  }
  return tensors;
}

void LaneMessages::set_gradient_forms(int, TensorForms forms) { gradients_ = whole_of(std::move(forms)); }

}  // namespace trireme
