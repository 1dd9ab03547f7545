// The bytes between workers and servers, and between a server and its replica: little-endian frames with checksums.
//
//   header   0  u32  magic "TRPS"
//            4  u16  version
//            6  u16  type
//            8  u32  bytes of meta, capped
//           12  u32  bytes of data, capped
//           16  u64  request: an answer repeats the number of what it answers
//           24  u32  CRC32C of bytes 0 … 23 and of the meta
//           28  u32  CRC32C of the data
//   meta    32  fields, as encode() writes them
//   data        float32, row numbers, packed gradients
//
// They follow the handshake that opens every connection of a job (comm/control/control_protocol.h), so only holders of
// the job's token get to send one. Decoders throw control::ProtocolError for anything that encode() never writes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/control/control_protocol.h"
#include "trireme/program/reduction_tree.h"
#include "trireme/server/keys.h"
#include "trireme/server/settings.h"
#include "trireme/server/shard/block.h"
#include "trireme/server/shard/host_shared_area.h"

namespace trireme::server {

inline constexpr uint32_t kMagic = 0x53505254;  // "TRPS"
inline constexpr uint16_t kVersion = 4;
inline constexpr size_t kHeaderBytes = 32;
inline constexpr size_t kMaxMetaBytes = size_t{8} << 20;
inline constexpr size_t kMaxDataBytes = size_t{1} << 30;
/// Channels of the handshake: who knocks.
inline constexpr uint64_t kWorkerChannel = 0x5053'0001, kReplicaChannel = 0x5053'0002;

enum class Type : uint16_t {
  // Events change a shard. They are numbered, repeated after a failure, applied once, and copied to the replica.
  kJoin = 1,
  kLeave,
  kInit,
  kPush,
  kFinish,
  kCommit,
  // Queries change nothing.
  kPull,
  kSquares,
  // Answers of a server.
  kJoined,
  kNotPrimary,
  kAck,
  kData,
  kError,
  kNote,
  kPulse,
  kGoodbye,
  // Between a shard's two servers.
  kAsk,
  kTell,
  kStateBegin,
  kStatePart,
  kStateRound,
  kStateEnd,
  kEventAck,
};

/// Parts of a key: what init() and pull() name.
enum class Part : uint16_t { kWeights = 0, kFirst, kSecond, kSquares };
inline constexpr uint32_t kNoSlot = 0xffffffff;

struct WireHeader {
  Type type{};
  uint32_t meta_bytes = 0, data_bytes = 0;
  uint64_t request = 0;
  uint32_t check = 0, data_check = 0;
};
std::array<std::byte, kHeaderBytes> encode(const WireHeader& header, std::span<const std::byte> meta);
/// Throws ProtocolError unless magic, version and caps are right.
WireHeader decode_wire_header(std::span<const std::byte> bytes);
/// Throws ProtocolError when bytes were damaged on the way.
void verify(std::span<const std::byte> header_bytes, const WireHeader& header, std::span<const std::byte> meta);

struct WireFrame {
  Type type{};
  uint64_t request = 0;
  std::vector<std::byte> meta;
  Block data;
};

/// A sum over consecutive leaves, a branch of the tree.
struct PartialSum {
  LeafRange leaves;
  uint32_t num_bytes = 0;  ///< in the data, one after another
};

/// Any event; each kind uses some of the fields.
struct Event {
  Type type = Type::kPush;
  uint32_t worker = 0;
  uint64_t sequence = 0;  ///< of this worker and shard, from 1; 0: not numbered (join, leave)
  uint32_t piece = 0;
  uint64_t clock = 0;
  uint64_t num_updates = 0;  ///< init only: that the values have had
  double lr = 0, factor = 1;
  Part part = Part::kWeights;
  bool applies = true;    ///< a commit: false skips the update
  bool packed = false;    ///< a push: by the codec
  uint32_t num_rows = 0;  ///< a push of rows: that many u64 before the partial sums
  uint32_t slot = kNoSlot, slot_bytes = 0;
  std::vector<PartialSum> partials;
  // Join only.
  uint64_t incarnation = 0;  ///< differs between processes that were this worker one after the other
  LeafRange leaves;
  bool uses_all = true;
  std::vector<uint32_t> uses;  ///< keys, unless all
  uint32_t pid = 0;
  std::string host;
};
std::vector<std::byte> encode(const Event& event);
Event decode_event(Type type, std::span<const std::byte> meta);

/// What a worker says first. The event in it is what the shard remembers.
struct JoinRequest {
  Event event;
  Settings settings;
  int num_servers = 1;
  std::vector<Key> keys;
  HostSharedTicket ticket;  ///< fd -1: none
};
std::vector<std::byte> encode(const JoinRequest& join);
JoinRequest decode_join(std::span<const std::byte> meta);

struct Joined {
  uint64_t lineage = 0;        ///< of the state: another one means that it was lost
  uint64_t last_sequence = 0;  ///< applied so far of this incarnation
  uint64_t clock = 0;          ///< where a worker that starts now should begin
  bool shares_memory = false;
};
std::vector<std::byte> encode(const Joined& joined);
Joined decode_joined(std::span<const std::byte> meta);

struct Query {
  Type type = Type::kPull;
  uint32_t worker = 0, piece = 0;
  uint64_t clock = 0;
  uint32_t priority = 0;
  Part part = Part::kWeights;
  uint32_t num_rows = 0;  ///< u64 each, in the data
  bool by_rows = false;
};
std::vector<std::byte> encode(const Query& query);
Query decode_query(Type type, std::span<const std::byte> meta);

/// Answer to an event, and to a query (with data).
struct Answer {
  bool dropped = false;     ///< a push that came too late to count
  uint64_t service_ns = 0;  ///< spent on it by the server
  uint32_t slot = kNoSlot, slot_bytes = 0;
};
std::vector<std::byte> encode(const Answer& answer);
Answer decode_answer(std::span<const std::byte> meta);

std::vector<std::byte> encode_text(std::string_view text);
std::string decode_text(std::span<const std::byte> meta);

}  // namespace trireme::server
