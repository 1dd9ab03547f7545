#include "trireme/tensor/in_flight.h"

#include <atomic>
#include <chrono>

#include "trireme/tensor/device.h"
#include "trireme/tensor/host_shared_tensor.h"

namespace trireme {
namespace {

std::atomic<bool> left_out = false;

/// Writes zeros where a collective would have written (the last operand is never the caller's memory), since
/// uninitialised values may be slow to compute with. In-place sums have values already.
void pretend(const Transfer& transfer) {
  if (transfer.operands.empty()) return;
  transfer.operands.back().zero_();
  if (!transfer.arrange) transfer.result.zero_();
}

}  // namespace

void leave_out_collectives(bool on) { left_out = on; }

at::Tensor complete(const Transfer& transfer) {
  const CallOptions options = call_options(transfer.result.device());
  if (left_out) {
    pretend(transfer);
  } else if (transfer.result.is_cuda()) {
    transfer.start(options).wait_on(options.stream);
  } else {
    transfer.run(options);
  }
  if (transfer.arrange) transfer.arrange();
  return transfer.result;
}

InFlight::InFlight(Transfer transfer, std::shared_ptr<DeviceMesh> mesh)
    : transfer_(std::move(transfer)), mesh_(std::move(mesh)) {
  ++mesh_->counts().started;
  if (left_out) {
    pretend(transfer_);
    return;
  }
  handle_ = transfer_.start(call_options(transfer_.result.device()));
}

InFlight::~InFlight() {
  try {
    land();
  } catch (...) {
    // Nobody needs the result, and the communicator reports the error to its next caller.
  }
}

void InFlight::land() {
  if (landed_) return;
  const at::NoGradGuard no_grad;
  MovementCounts& counts = mesh_->counts();
  const bool came_before = handle_.valid() && handle_.test();
  const auto start = std::chrono::steady_clock::now();
  if (handle_.valid()) handle_.wait_on(current_stream(transfer_.result.device()));
  if (transfer_.arrange) transfer_.arrange();
  counts.came_before += came_before ? 1 : 0;
  counts.waited_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  landed_ = true;
  transfer_ = {};
}

}  // namespace trireme
