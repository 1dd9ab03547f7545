// The header of every message between two ranks. docs/communication.md describes it byte by byte.
#pragma once

#include <cstdint>

#include "trireme/comm/record/operation.h"

namespace trireme {

struct FrameHeader {
  static constexpr uint32_t kMagic = 0x4d495254;  // "TRIM"
  static constexpr uint16_t kVersion = 1;
  static constexpr uint64_t kMaxLength = uint64_t{1} << 40;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint16_t lane = 0;  ///< messages of one lane are matched in order; see Endpoint
  uint32_t tag = 0;
  uint32_t round = 0;  ///< the sender's count of rounds
  uint64_t length = 0;
  uint64_t fingerprint = 0;
  uint64_t generation = 0;
  OperationDigest digest;
};
static_assert(sizeof(FrameHeader) == 64);

}  // namespace trireme
