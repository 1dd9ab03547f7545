#include "trireme/comm/cuda/nccl_operations.h"

#include <fmt/format.h>

#include <thread>

namespace trireme {
namespace {

ncclDataType_t nccl_type(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return ncclFloat32;
    case DataType::kDouble:
      return ncclFloat64;
    case DataType::kHalf:
      return ncclFloat16;
    case DataType::kBFloat16:
      return ncclBfloat16;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUInt8:
      break;
  }
  return ncclUint8;
}

ncclRedOp_t nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kProduct:
      break;
  }
  return ncclProd;
}

bool is_floating(DataType type) {
  return type != DataType::kInt32 && type != DataType::kInt64 && type != DataType::kUInt8;
}

}  // namespace

NcclOperations::NcclOperations(Communicator::Impl& impl, int device, std::unique_ptr<NcclLink> link)
    : GpuBackend(impl, device), link_(std::move(link)) {}

NcclOperations::~NcclOperations() {
  link_->abort();
  if (is_healthy()) free_scratch();
}

void NcclOperations::abort() noexcept {
  set_unhealthy();
  link_->abort();
}

std::unique_ptr<GpuOperations> NcclOperations::split(Communicator* child, int color, int key) {
  const DeviceGuard guard(device_);
  const Deadline deadline(Clock::now() + impl_->context->call_timeout);
  const Check check = [&] {
    impl_->check_usable();
    if (!deadline.expired()) return;
    impl_->break_with(fmt::format("{} waited in vain for NCCL to split group {}",
                                  impl_->context->describe(impl_->context->rank), impl_->group.name),
                      -1, true);
  };
  // NCCL wants nothing under way on the parent.
  while (cudaStreamQuery(stream_) == cudaErrorNotReady) {
    check();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::unique_ptr<NcclLink> link = link_->split(color, key, check);
  if (child == nullptr) return nullptr;
  return std::make_unique<NcclOperations>(child->impl(), device_, std::move(link));
}

void NcclOperations::transfer(const char* what, std::span<const Piece> pieces, const Check& check) {
  const int me = rank();
  link_->call(what, check, [&](ncclComm_t comm) {
    ncclResult_t result = ncclGroupStart();
    const auto keep = [&](ncclResult_t next) {
      if (result == ncclSuccess || result == ncclInProgress) result = next;
    };
    for (int step = 1; step < size(); ++step) {
      const int to = (me + step) % size(), from = (me + size() - step) % size();
      if (const Piece& out = pieces[static_cast<size_t>(to)]; out.out_bytes > 0)
        keep(ncclSend(out.out, out.out_bytes, ncclUint8, to, comm, stream_));
      if (const Piece& in = pieces[static_cast<size_t>(from)]; in.in_bytes > 0)
        keep(ncclRecv(in.in, in.in_bytes, ncclUint8, from, comm, stream_));
    }
    const ncclResult_t end = ncclGroupEnd();
    keep(end);
    return result;
  });
}

bool NcclOperations::do_natively(const GpuRequest& request, const Check& check) {
  const int root = request.root;
  const auto* in = request.in.bytes;
  auto* out = request.out.bytes;
  const size_t in_bytes = request.in.num_bytes(), out_bytes = request.out.num_bytes();
  const ncclDataType_t type = nccl_type(type_of(request));
  const ncclRedOp_t op = nccl_op(request.op);
  const auto call = [&](const char* what, auto body) {
    link_->call(what, check, body);
    return true;
  };
  switch (request.kind) {
    case OperationKind::kBroadcast:
      return out_bytes > 0 && size() > 1 && call("ncclBroadcast", [&](ncclComm_t comm) {
               return ncclBroadcast(out, out, out_bytes, ncclUint8, root, comm, stream_);
             });
    case OperationKind::kAllGather:
      return in_bytes > 0 && call("ncclAllGather", [&](ncclComm_t comm) {
               return ncclAllGather(in, out, in_bytes, ncclUint8, comm, stream_);
             });
    case OperationKind::kReduce:
      return in_bytes > 0 && !needs_order(request) && call("ncclReduce", [&](ncclComm_t comm) {
               return ncclReduce(in, rank() == root ? out : nullptr, request.in.count, type, op, root, comm, stream_);
             });
    case OperationKind::kReduceScatter:
      return out_bytes > 0 && !needs_order(request) && call("ncclReduceScatter", [&](ncclComm_t comm) {
               return ncclReduceScatter(in, out, request.out.count, type, op, comm, stream_);
             });
    case OperationKind::kAllReduce:
      return in_bytes > 0 && !needs_order(request) && call("ncclAllReduce", [&](ncclComm_t comm) {
               return ncclAllReduce(in, out, request.in.count, type, op, comm, stream_);
             });
    default:
      return false;
  }
}

bool NcclOperations::needs_order(const GpuRequest& request) const {
  if (!request.ordered) return false;
  if (request.op == ReduceOp::kAverage) return true;  // NCCL divides before it adds
  if (!is_floating(type_of(request))) return false;
  // The minimum of a NaN, or of two zeros, is NCCL's own business.
  return size() > 2 || (request.op != ReduceOp::kSum && request.op != ReduceOp::kProduct);
}

}  // namespace trireme
