#include "trireme/comm/control/control_protocol.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::control {
namespace {

constexpr size_t kHelloBytes = 2 + 2 + 4 + 32 + 4 + 4 + 4 + 8 + 32 + 32;
constexpr size_t kMaxTableBytes = size_t{1} << 30;
constexpr uint32_t kUnknownRank = UINT32_MAX;

void write_all_but_mac(FrameWriter& writer, const Hello& hello) {
  writer.u16(static_cast<uint16_t>(hello.purpose)).u16(hello.protocol).u32(hello.library).raw(hello.job);
  writer.u32(hello.rank).u32(hello.size).u32(hello.target).u64(hello.channel).raw(hello.nonce);
}

Digest read_digest(PayloadReader& reader) {
  Digest digest;
  std::ranges::copy(reader.raw(digest.size()), digest.begin());
  return digest;
}

void write_member(FrameWriter& writer, const Member& member) {
  writer.u32(static_cast<uint32_t>(member.rank)).u32(static_cast<uint32_t>(member.pid)).u32(member.port);
  writer.text(member.host_name).text(member.host_id).text(member.address).text(member.blob);
}

Member read_member(PayloadReader& reader) {
  Member member;
  member.rank = static_cast<int>(reader.u32());
  member.pid = static_cast<int>(reader.u32());
  member.port = static_cast<uint16_t>(reader.u32());
  member.host_name = reader.text();
  member.host_id = reader.text();
  member.address = reader.text();
  member.blob = reader.text();
  return member;
}

}  // namespace

FrameWriter& FrameWriter::raw(std::span<const std::byte> bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view text) {
  u32(static_cast<uint32_t>(text.size()));
  return raw(std::as_bytes(std::span(text.data(), text.size())));
}

std::vector<std::byte> FrameWriter::finish() {
  const auto put = [this](size_t at, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) bytes_[at + i] = std::byte(value >> (8 * i));
  };
  put(0, kMagic, 4);
  put(4, kProtocolVersion, 2);
  put(6, static_cast<uint16_t>(type_), 2);
  put(8, bytes_.size() - kHeaderBytes, 4);
  return std::move(bytes_);
}

std::span<const std::byte> PayloadReader::raw(size_t size) {
  if (size > bytes_.size()) throw ProtocolError("a control frame is too short");
  const auto taken = bytes_.first(size);
  bytes_ = bytes_.subspan(size);
  return taken;
}

std::string PayloadReader::text() {
  const auto bytes = raw(u32());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void PayloadReader::expect_end() const {
  if (!bytes_.empty()) throw ProtocolError("a control frame is too long");
}

FrameHeader decode_header(std::span<const std::byte> bytes) {
  PayloadReader reader(bytes);
  FrameHeader header;
  header.magic = reader.u32();
  header.version = reader.u16();
  header.type = static_cast<FrameType>(reader.u16());
  header.payload_bytes = reader.u32();
  return header;
}

std::vector<std::byte> encode(const Hello& hello) {
  FrameWriter writer(FrameType::kHello);
  write_all_but_mac(writer, hello);
  return writer.raw(hello.mac).finish();
}

Hello decode_hello(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Hello hello;
  hello.purpose = static_cast<Purpose>(reader.u16());
  hello.protocol = reader.u16();
  hello.library = reader.u32();
  hello.job = read_digest(reader);
  hello.rank = reader.u32();
  hello.size = reader.u32();
  hello.target = reader.u32();
  hello.channel = reader.u64();
  hello.nonce = read_digest(reader);
  hello.mac = read_digest(reader);
  reader.expect_end();
  return hello;
}

Digest mac_of(const Hello& hello, const Digest& server_nonce, std::string_view token, std::string_view role) {
  FrameWriter writer(FrameType::kHello);
  write_all_but_mac(writer, hello);
  const std::vector<std::byte> bytes = writer.finish();
  std::array<char, 8> padded{};
  std::copy_n(role.begin(), std::min(role.size(), padded.size()), padded.begin());
  return HmacSha256(token)
      .update(std::string_view(padded.data(), padded.size()))
      .update(server_nonce)
      .update(std::span(bytes).subspan(kHeaderBytes, kHelloBytes - 32))
      .finish();
}

std::vector<std::byte> encode(const Refusal& refusal) {
  constexpr size_t kMaxText = kMaxHandshakeBytes - kHeaderBytes - 8;
  FrameWriter writer(FrameType::kRefusal);
  return writer.u32(static_cast<uint32_t>(refusal.code))
      .text(std::string_view(refusal.text).substr(0, kMaxText))
      .finish();
}

Refusal decode_refusal(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Refusal refusal;
  refusal.code = static_cast<RefusalCode>(reader.u32());
  refusal.text = reader.text();
  return refusal;
}

std::vector<std::byte> encode_register(const Member& member) {
  FrameWriter writer(FrameType::kRegister);
  write_member(writer, member);
  return writer.finish();
}

Member decode_register(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Member member = read_member(reader);
  reader.expect_end();
  return member;
}

Bytes encode_table(const std::vector<Member>& members) {
  FrameWriter all(FrameType::kTable);
  all.u32(static_cast<uint32_t>(members.size()));
  for (const Member& member : members) write_member(all, member);
  const std::vector<std::byte> with_header = all.finish();
  const auto table = std::span(with_header).subspan(kHeaderBytes);

  std::vector<std::byte> frames;
  for (size_t offset = 0; offset < table.size(); offset += kTablePieceBytes) {
    FrameWriter piece(FrameType::kTable);
    piece.u64(table.size()).u64(offset);
    piece.raw(table.subspan(offset, std::min(kTablePieceBytes, table.size() - offset)));
    const std::vector<std::byte> bytes = piece.finish();
    frames.insert(frames.end(), bytes.begin(), bytes.end());
  }
  return std::make_shared<const std::vector<std::byte>>(std::move(frames));
}

bool TableReader::add(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  const uint64_t total = reader.u64();
  const uint64_t offset = reader.u64();
  const auto piece = reader.raw(reader.left());
  if (total > kMaxTableBytes || offset != bytes_.size() || piece.size() > total - offset) {
    throw ProtocolError("the table of members has a piece out of place");
  }
  bytes_.insert(bytes_.end(), piece.begin(), piece.end());
  return bytes_.size() == total;
}

std::vector<Member> TableReader::members() const {
  PayloadReader reader(bytes_);
  const uint32_t count = reader.u32();
  if (count > kMaxWorldSize) throw ProtocolError("the table of members is too large");
  std::vector<Member> members;
  members.reserve(count);
  for (uint32_t i = 0; i < count; ++i) members.push_back(read_member(reader));
  reader.expect_end();
  return members;
}

Bytes encode(const Waiting& waiting) {
  FrameWriter writer(FrameType::kWaiting);
  writer.u32(waiting.num_missing).u32(static_cast<uint32_t>(waiting.first.size()));
  for (uint32_t rank : waiting.first) writer.u32(rank);
  return writer.to_bytes();
}

Waiting decode_waiting(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Waiting waiting;
  waiting.num_missing = reader.u32();
  const uint32_t count = reader.u32();
  for (uint32_t i = 0; i < count; ++i) waiting.first.push_back(reader.u32());
  return waiting;
}

Bytes encode(const Beat& beat) {
  FrameWriter writer(FrameType::kHeartbeat);
  return writer.u64(beat.group).u64(beat.sequence).u64(beat.step).u32(beat.operation).to_bytes();
}

Beat decode_beat(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Beat beat;
  beat.group = reader.u64();
  beat.sequence = reader.u64();
  beat.step = reader.u64();
  beat.operation = reader.u32();
  return beat;
}

Bytes encode(const Failure& failure) {
  FrameWriter writer(FrameType::kFailure);
  writer.u32(failure.culprit < 0 ? kUnknownRank : static_cast<uint32_t>(failure.culprit));
  return writer.text(std::string_view(failure.message).substr(0, kMaxFailureBytes)).to_bytes();
}

Failure decode_failure(std::span<const std::byte> payload) {
  PayloadReader reader(payload);
  Failure failure;
  const uint32_t culprit = reader.u32();
  failure.culprit = culprit < kMaxWorldSize ? static_cast<int>(culprit) : -1;
  failure.message = reader.text();
  return failure;
}

Bytes encode_answer(uint64_t question, const std::vector<RankStatus>& ranks) {
  FrameWriter writer(FrameType::kAnswer);
  writer.u64(question).u32(static_cast<uint32_t>(ranks.size()));
  for (const RankStatus& r : ranks) {
    writer.u64(static_cast<uint64_t>(std::max(0.0, r.seconds_since_heartbeat) * 1e9));
    writer.u64(r.group).u64(r.sequence).u64(r.step).u32(r.operation);
  }
  return writer.to_bytes();
}

uint64_t decode_answer(std::span<const std::byte> payload, std::vector<RankStatus>& ranks) {
  PayloadReader reader(payload);
  const uint64_t question = reader.u64();
  const uint32_t count = reader.u32();
  ranks.clear();
  for (uint32_t i = 0; i < count; ++i) {
    RankStatus status;
    status.rank = static_cast<int>(i);
    status.seconds_since_heartbeat = static_cast<double>(reader.u64()) * 1e-9;
    status.group = reader.u64();
    status.sequence = reader.u64();
    status.step = reader.u64();
    status.operation = reader.u32();
    ranks.push_back(status);
  }
  return question;
}

Bytes encode(FrameType type) { return FrameWriter(type).to_bytes(); }

std::string describe_member(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host_name, member.pid);
}

std::string describe_missing(const Waiting& waiting, int size) {
  return fmt::format("{} of {} ranks {} missing: {}{}", waiting.num_missing, size,
                     waiting.num_missing == 1 ? "is" : "are", fmt::join(waiting.first, ", "),
                     waiting.num_missing > waiting.first.size() ? ", …" : "");
}

}  // namespace trireme::control
