// What a rank says about an operation before it takes part in it, so that ranks that disagree find out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/comm/algorithms/algorithm.h"
#include "trireme/comm/types.h"

namespace trireme {

enum class OperationKind : uint8_t {
  kNone,
  kSend,
  kRecv,
  kBarrier,
  kBroadcast,
  kScatter,
  kGather,
  kAllGather,
  kAllGatherV,
  kReduce,
  kReduceScatter,
  kReduceScatterV,
  kAllReduce,
  kAllToAll,
  kAllToAllV,
};

std::string_view name_of(OperationKind kind);

/// Fixed layout: it travels in frames and in shared memory.
struct OperationDigest {
  OperationKind kind = OperationKind::kNone;
  DataType type = DataType::kUInt8;
  ReduceOp op = ReduceOp::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  int32_t root = -1;      ///< the tag for point to point
  uint64_t count = 0;     ///< elements, as all ranks must state it
  uint64_t sequence = 0;  ///< of the operation in its group

  bool operator==(const OperationDigest&) const = default;
};
static_assert(sizeof(OperationDigest) == 24);

/// Equal for two ranks exactly when (but for a chance of 2^-64) they mean the same operation of the same group.
/// `extra` covers what the digest does not hold, such as unequal counts.
inline uint64_t fingerprint(const OperationDigest& digest, uint64_t group, uint64_t extra = 0) {
  const auto mix = [](uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 32);
  };
  uint64_t h = mix(group, static_cast<uint64_t>(digest.kind) | static_cast<uint64_t>(digest.type) << 8 |
                              static_cast<uint64_t>(digest.op) << 16 | static_cast<uint64_t>(digest.algorithm) << 24 |
                              static_cast<uint64_t>(static_cast<uint32_t>(digest.root)) << 32);
  return mix(mix(mix(h, digest.count), digest.sequence), extra);
}

/// "all-reduce #17 (sum of 1024 float)".
std::string describe(const OperationDigest& digest);

}  // namespace trireme
