// The bytes of the control plane: fixed-layout, little-endian frames.
//
//   header   0  u32  magic "TRRM"
//            4  u16  protocol version
//            6  u16  frame type
//            8  u32  payload bytes, capped: 500 before authentication, 1 MiB after it
//   payload 12  as below; `text` is u32 bytes, then the bytes
//
//   from       frame      payload
//   server     Challenge  nonce[32]
//   client     Hello      u16 purpose, u16 protocol, u32 library, job[32], u32 rank, u32 size, u32 target, u64 channel,
//                         nonce[32], mac[32]
//   server     Welcome    mac[32]
//   server     Refusal    u32 code, text
//   client     Register   member: u32 rank, u32 pid, u32 port, text host_name, text host_id, text address, text blob
//   server     Waiting    u32 num_missing, u32 n, u32 rank[n]: the first of those who have not joined
//   server     Table      u64 total bytes, u64 offset, bytes: a piece of all members, by rank
//   client     Heartbeat  u64 group, u64 sequence, u64 step, u32 operation
//   server     Pulse      nothing: the coordinator lives
//   both       Failure    u32 culprit (2^32-1: unknown), text
//   client     Ask        u64 question
//   server     Answer     u64 question, u32 n, n times: u64 nanoseconds, u64 group, u64 sequence, u64 step, u32
//   operation client     Goodbye    nothing: what follows is no failure
//
// The same handshake (Challenge, Hello, Welcome or Refusal) opens the connection to the coordinator and every data
// connection between two ranks; on the latter the bytes after it belong to the transport. A mac is HMAC-SHA256 under
// the job's token of the role ("client" or "server", padded to 8 bytes), the server's nonce, and the Hello without its
// mac: each side proves that it knows the token, for this connection, this purpose and these ranks, and for nothing
// else. Header, Challenge, Hello up to `library`, and Refusal keep their layout in all versions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/sha256.h"
#include "trireme/base/version.h"
#include "trireme/comm/control/control.h"

namespace trireme::control {

inline constexpr uint32_t kMagic = 0x4d525254;  // "TRRM"
inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kHeaderBytes = 12;
inline constexpr size_t kMaxHandshakeBytes = 512;  ///< header and payload of a connection that is not yet trusted
inline constexpr size_t kMaxPayloadBytes = 1 << 20;
inline constexpr size_t kTablePieceBytes = 256 << 10;
inline constexpr size_t kMaxFailureBytes = 8 << 10;
inline constexpr int kMaxWorldSize = 16384;  ///< what one Answer can describe

enum class FrameType : uint16_t {
  kChallenge = 1,
  kHello,
  kWelcome,
  kRefusal,
  kRegister,
  kWaiting,
  kTable,
  kHeartbeat,
  kPulse,
  kFailure,
  kAsk,
  kAnswer,
  kGoodbye,
};

enum class Purpose : uint16_t { kControl = 1, kData = 2 };

enum class RefusalCode : uint32_t {
  kWrongToken = 1,
  kOtherJob,
  kOtherProtocol,
  kOtherLibrary,
  kRankOutside,
  kSizeDiffers,
  kRankTaken,
  kChannelTaken,
  kWrongPeer,
  kNotNow,  ///< the job here is ending or already complete: ask again
};

/// A frame that no honest peer of this version sends. Never leaves the control plane.
class ProtocolError : public Error {
 public:
  using Error::Error;
};

struct FrameHeader {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  FrameType type{};
  uint32_t payload_bytes = 0;
};

struct Frame {
  FrameType type{};
  std::vector<std::byte> payload;
};

/// An encoded frame, or several; shared by all queues that send it.
using Bytes = std::shared_ptr<const std::vector<std::byte>>;

/// Appends little-endian values; finish() puts the header in front.
class FrameWriter {
 public:
  explicit FrameWriter(FrameType type) : type_(type), bytes_(kHeaderBytes) {}
  FrameWriter& u16(uint16_t value) { return integer(value); }
  FrameWriter& u32(uint32_t value) { return integer(value); }
  FrameWriter& u64(uint64_t value) { return integer(value); }
  FrameWriter& raw(std::span<const std::byte> bytes);
  FrameWriter& text(std::string_view text);
  std::vector<std::byte> finish();
  Bytes to_bytes() { return std::make_shared<const std::vector<std::byte>>(finish()); }

 private:
  template <typename T>
  FrameWriter& integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(std::byte(value >> (8 * i)));
    return *this;
  }

  FrameType type_;
  std::vector<std::byte> bytes_;
};

/// Reads what FrameWriter wrote. Throws ProtocolError past the end.
class PayloadReader {
 public:
  explicit PayloadReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint16_t u16() { return integer<uint16_t>(); }
  uint32_t u32() { return integer<uint32_t>(); }
  uint64_t u64() { return integer<uint64_t>(); }
  std::span<const std::byte> raw(size_t size);
  std::string text();
  size_t left() const { return bytes_.size(); }
  /// Throws unless everything was read.
  void expect_end() const;

 private:
  template <typename T>
  T integer() {
    T value = 0;
    const auto from = raw(sizeof(T));
    for (size_t i = 0; i < sizeof(T); ++i) value = T(value | T(std::to_integer<T>(from[i])) << (8 * i));
    return value;
  }

  std::span<const std::byte> bytes_;
};

/// Reads kHeaderBytes; checks nothing.
FrameHeader decode_header(std::span<const std::byte> bytes);

struct Hello {
  Purpose purpose = Purpose::kControl;
  uint16_t protocol = kProtocolVersion;
  uint32_t library = kVersionNumber;
  Digest job{};
  uint32_t rank = 0;
  uint32_t size = 0;
  uint32_t target = 0;   ///< the rank that is meant to answer
  uint64_t channel = 0;  ///< data connections only
  Digest nonce{};
  Digest mac{};
};

struct Refusal {
  RefusalCode code{};
  std::string text;  ///< what the refusing side knows; shown to the user
};

struct Waiting {
  uint32_t num_missing = 0;
  std::vector<uint32_t> first;
};

/// What a heartbeat says of its rank.
struct Beat {
  uint64_t group = 0, sequence = 0, step = 0;
  uint32_t operation = 0;
};

std::vector<std::byte> encode(const Hello& hello);
Hello decode_hello(std::span<const std::byte> payload);
/// `role` is "client" or "server".
Digest mac_of(const Hello& hello, const Digest& server_nonce, std::string_view token, std::string_view role);

std::vector<std::byte> encode(const Refusal& refusal);
Refusal decode_refusal(std::span<const std::byte> payload);

std::vector<std::byte> encode_register(const Member& member);
Member decode_register(std::span<const std::byte> payload);

/// All Table frames of a job, one after the other.
Bytes encode_table(const std::vector<Member>& members);
/// Takes the pieces in their order; true once the table is complete.
class TableReader {
 public:
  bool add(std::span<const std::byte> payload);
  std::vector<Member> members() const;

 private:
  std::vector<std::byte> bytes_;
};

Bytes encode(const Waiting& waiting);
Waiting decode_waiting(std::span<const std::byte> payload);
Bytes encode(const Beat& beat);
Beat decode_beat(std::span<const std::byte> payload);
Bytes encode(const Failure& failure);
Failure decode_failure(std::span<const std::byte> payload);
Bytes encode_answer(uint64_t question, const std::vector<RankStatus>& ranks);
/// Returns the question's number.
uint64_t decode_answer(std::span<const std::byte> payload, std::vector<RankStatus>& ranks);
/// A frame without payload.
Bytes encode(FrameType type);

/// "rank 5 (host node-b, pid 8123)".
std::string describe_member(const Member& member);
/// "4 of 8 ranks are missing: 1, 2, 5, 7".
std::string describe_missing(const Waiting& waiting, int size);

}  // namespace trireme::control
