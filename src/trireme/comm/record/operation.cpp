#include "trireme/comm/record/operation.h"

#include <fmt/format.h>

#include <iterator>

namespace trireme {

std::string_view name_of(OperationKind kind) {
  static constexpr std::string_view kNames[] = {"nothing",    "send",           "recv",
                                                "barrier",    "broadcast",      "scatter",
                                                "gather",     "all-gather",     "all-gather of unequal sizes",
                                                "reduce",     "reduce-scatter", "reduce-scatter of unequal sizes",
                                                "all-reduce", "all-to-all",     "all-to-all of unequal sizes"};
  static_assert(std::size(kNames) == static_cast<size_t>(OperationKind::kAllToAllV) + 1);
  const auto index = static_cast<size_t>(kind);
  return index < std::size(kNames) ? kNames[index] : "unknown operation";
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
