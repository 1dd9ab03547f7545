#include "trireme/runtime/lane_messages.h"

#include "trireme/base/error.h"
#include "trireme/layout/redistribution.h"
#include "trireme/tensor/device.h"
#include "trireme/tensor/shared_tensor.h"

namespace trireme {
namespace {

constexpr uint32_t kFormTag = 0xffe00000, kOnTag = 0xffe00001;  // beyond those of programs, before MeshMessages' own

Program without_instructions(Program program) {
  program.instructions.clear();
  return program;
}

}  // namespace

LaneMessages::LaneMessages(Communicator& comm, std::vector<LaneStage> stages, std::shared_ptr<DeviceMesh> mesh,
                           Program program, torch::Device device)
    : MeshMessages(comm, program.num_micro_batches, device),
      stages_(std::move(stages)),
      mesh_(std::move(mesh)),
      program_(without_instructions(std::move(program))),
      own_stage_(program_.pipeline_rank),
      own_replica_((comm.rank() - stage(own_stage_).first_rank) / stage(own_stage_).tp) {}

std::vector<Placement> LaneMessages::placements(int number, const TensorForm& form) const {
  return {stage(number).cuts_sequence && form.sizes.size() == 3 ? Placement::shard(1) : Placement::replicate()};
}

/// Of what lies on this rank.
TensorForm LaneMessages::whole_of(TensorForm part) const {
  if (placements(own_stage_, part)[0].is_shard()) part.sizes[1] *= stage(own_stage_).tp;
  return part;
}

MeshPlace LaneMessages::place_of(int number, int replica) const {
  const int tp = stage(number).tp;
  const bool is_own = number == own_stage_ && replica == own_replica_;
  return {stage(number).first_rank + replica * tp, {tp}, is_own ? mesh_ : nullptr};
}

ParcelRoute LaneMessages::make_route(const MeshPlace& from, int from_stage, const MeshPlace& to, int to_stage,
                                     const TensorForm& form) const {
  return {{{form.sizes, placements(from_stage, form), placements(to_stage, form)}},
          from,
          to,
          torch::TensorOptions().dtype(form.type).device(device_)};
}

/// To or from a replica of a neighbouring stage.
const ParcelRoute& LaneMessages::route_of(bool is_gradient, int replica, bool sends, const TensorForm& form) {
  const std::tuple key(is_gradient, replica, sends);
  const auto known = routes_.find(key);
  if (known != routes_.end()) return known->second;
  const int other = own_stage_ + (is_gradient == sends ? -1 : 1);
  const MeshPlace here = place_of(own_stage_, own_replica_), there = place_of(other, replica);
  return routes_
      .emplace(key, sends ? make_route(here, own_stage_, there, other, form)
                          : make_route(there, other, here, own_stage_, form))
      .first->second;
}

/// By the first rank of a replica, to each that receives.
void LaneMessages::send_form(const TensorForm& form, const MeshPlace& to, uint32_t tag) {
  if (mesh_->rank() > 0) return;
  const torch::Tensor numbers = form_to_numbers(form);
  for (int i = 0; i < to.axis_sizes[0]; ++i) {
    keep_until_sent(comm_.start_send(data_of(numbers), to.first_rank + i, tag), numbers);
  }
}

torch::Tensor LaneMessages::shaped(const torch::Tensor& flat, const TensorForm& form) const {
  return flat.view(local_sizes(form.sizes, placements(own_stage_, form), mesh_->axis_sizes(), mesh_->coordinates()));
}

void LaneMessages::send(const PipelineMessage& message, int, const torch::Tensor& tensor) {
  const int replica = program_.replica_with(message.micro_batch, message.stage);
  const TensorForm form = whole_of(form_of(tensor));
  if (!message.is_gradient && told_.insert(replica).second) {
    send_form(form, place_of(message.stage, replica), kFormTag);
  }
  start_sends(route_of(message.is_gradient, replica, true, form), tensor.reshape({-1}), tag_of(message));
}

/// The replica that sends it.
int LaneMessages::source_of(const PipelineMessage& message) const {
  return program_.replica_with(message.micro_batch, message.stage + (message.is_gradient ? 1 : -1));
}

LaneMessages::Line& LaneMessages::line_of(const PipelineMessage& message) {
  return lines_[{message.is_gradient, source_of(message)}];
}

void LaneMessages::post_line(Line& line) {
  while (!line.waiting.empty()) {
    const PipelineMessage message = line.waiting.front();
    expect(message, route_of(message.is_gradient, source_of(message), false, *line.form), tag_of(message));
    line.waiting.pop_front();
  }
}

void LaneMessages::post_receive(const PipelineMessage& message, int) {
  Line& line = line_of(message);
  line.waiting.push_back(message);
  if (message.is_gradient && !line.form) line.form = output_;
  if (line.form) return post_line(line);
  if (message.is_gradient || line.numbers.defined()) return;
  line.numbers = empty_form();
  const MeshPlace from = place_of(message.stage - 1, source_of(message));
  line.handle = comm_.start_recv(data_of(line.numbers), from.first_rank, kFormTag);
}

torch::Tensor LaneMessages::take(const PipelineMessage& message) {
  Line& line = line_of(message);
  if (!line.form) {
    if (message.is_gradient) {
      line.form = output_;
      if (!line.form) throw Error("a gradient comes before its activation was computed");
    } else {
      if (!line.numbers.defined()) throw Error("a message is used that was not posted");
      line.handle.wait();
      line.form = form_from_numbers(line.numbers);
    }
  }
  post_line(line);
  return shaped(wait_for(route_of(message.is_gradient, source_of(message), false, *line.form), message), *line.form);
}

void LaneMessages::set_gradient_form(int, TensorForm form) { output_ = whole_of(std::move(form)); }

void LaneMessages::send_on(const torch::Tensor& output, int lane, int64_t length) {
  const int to = own_stage_ + 1;
  const MeshPlace there = place_of(to, program_.replica_of_lane(lane, to));
  TensorForm form = form_of(output);
  if (placements(own_stage_, form)[0].is_shard()) form.sizes[1] = length;
  send_form(form, there, kOnTag);
  start_sends(make_route(place_of(own_stage_, own_replica_), own_stage_, there, to, form), output.reshape({-1}),
              kOnTag);
}

torch::Tensor LaneMessages::receive_on(int lane) {
  const int from = own_stage_ - 1;
  const MeshPlace there = place_of(from, program_.replica_of_lane(lane, from));
  const torch::Tensor numbers = empty_form();
  comm_.start_recv(data_of(numbers), there.first_rank, kOnTag).wait();
  const TensorForm form = form_from_numbers(numbers);
  const ParcelRoute route = make_route(there, from, place_of(own_stage_, own_replica_), own_stage_, form);
  const PipelineMessage message{false, own_stage_, -1};
  expect(message, route, kOnTag);
  return shaped(wait_for(route, message), form);
}

}  // namespace trireme
