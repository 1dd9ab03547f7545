#include "trireme/comm/record/operation.h"

#include <fmt/format.h>

namespace trireme {

std::string_view name_of(OperationKind kind) {
  switch (kind) {
    case OperationKind::kNone:
      return "nothing";
    case OperationKind::kSend:
      return "send";
    case OperationKind::kRecv:
      return "recv";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kAllGather:
      return "all-gather";
    case OperationKind::kAllGatherV:
      return "all-gather of unequal sizes";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kReduceScatter:
      return "reduce-scatter";
    case OperationKind::kReduceScatterV:
      return "reduce-scatter of unequal sizes";
    case OperationKind::kAllReduce:
      return "all-reduce";
    case OperationKind::kAllToAll:
      return "all-to-all";
    case OperationKind::kAllToAllV:
      return "all-to-all of unequal sizes";
  }
  return "unknown operation";
}

std::string describe(const OperationDigest& digest) {
  std::string text(name_of(digest.kind));
  const bool point_to_point = digest.kind == OperationKind::kSend || digest.kind == OperationKind::kRecv;
  if (digest.sequence != 0) text += fmt::format(" #{}", digest.sequence);
  if (digest.kind == OperationKind::kBarrier || digest.kind == OperationKind::kNone) return text;
  text += " (";
  const bool reduces = digest.kind == OperationKind::kReduce || digest.kind == OperationKind::kReduceScatter ||
                       digest.kind == OperationKind::kReduceScatterV || digest.kind == OperationKind::kAllReduce;
  if (reduces) text += fmt::format("{} of ", name_of(digest.op));
  text += fmt::format("{} {}", digest.count, name_of(digest.type));
  if (digest.root >= 0) text += fmt::format(", {} {}", point_to_point ? "tag" : "root", digest.root);
  if (digest.algorithm != Algorithm::kAuto) text += fmt::format(", {}", name_of(digest.algorithm));
  return text + ")";
}

}  // namespace trireme
