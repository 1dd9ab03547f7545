#include "trireme/server/wire.h"

#include "trireme/base/crc32c.h"
#include "trireme/server/wire_fields.h"

namespace trireme::server {

using namespace fields;

std::array<std::byte, kHeaderBytes> encode(const WireHeader& header, std::span<const std::byte> meta) {
  Writer w;
  w.u32(kMagic).u16(kVersion).u16(static_cast<uint16_t>(header.type)).u32(static_cast<uint32_t>(meta.size()));
  w.u32(header.data_bytes).u64(header.request);
  w.u32(crc32c(meta, crc32c(w.bytes()))).u32(header.data_check);
  std::array<std::byte, kHeaderBytes> out;
  std::copy_n(w.bytes().begin(), kHeaderBytes, out.begin());
  return out;
}

WireHeader decode_wire_header(std::span<const std::byte> bytes) {
  PayloadReader reader(bytes.first(kHeaderBytes));
  if (reader.u32() != kMagic || reader.u16() != kVersion) throw ProtocolError("no frame of a parameter server");
  WireHeader header;
  const uint16_t type = reader.u16();
  if (type == 0 || type > static_cast<uint16_t>(Type::kEventAck)) throw ProtocolError("a frame of no known type");
  header.type = static_cast<Type>(type);
  header.meta_bytes = reader.u32();
  header.data_bytes = reader.u32();
  header.request = reader.u64();
  header.check = reader.u32();
  header.data_check = reader.u32();
  if (header.meta_bytes > kMaxMetaBytes || header.data_bytes > kMaxDataBytes) throw ProtocolError("a frame too large");
  return header;
}

void verify(std::span<const std::byte> header_bytes, const WireHeader& header, std::span<const std::byte> meta) {
  if (crc32c(meta, crc32c(header_bytes.first(24))) != header.check) {
    throw ProtocolError("a frame was damaged on its way");
  }
}

std::vector<std::byte> encode(const Event& event) {
  Writer w;
  write(w, event);
  return w.take();
}

Event decode_event(Type type, std::span<const std::byte> meta) {
  return whole(meta, [type](PayloadReader& reader) { return event_of(type, reader); });
}

std::vector<std::byte> encode(const JoinRequest& join) {
  Writer w;
  write(w, join.event);
  write(w, join.settings, join.num_servers, join.keys);
  w.u32(static_cast<uint32_t>(join.ticket.pid)).u32(static_cast<uint32_t>(join.ticket.fd)).u64(join.ticket.secret);
  w.u32(join.ticket.num_slots).u32(join.ticket.slot_bytes);
  return w.take();
}

JoinRequest decode_join(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    JoinRequest join;
    join.event = event_of(Type::kJoin, reader);
    read(reader, join.settings, join.num_servers, join.keys);
    join.ticket.pid = static_cast<int>(reader.u32());
    join.ticket.fd = static_cast<int>(reader.u32());
    join.ticket.secret = reader.u64();
    join.ticket.num_slots = reader.u32();
    join.ticket.slot_bytes = reader.u32();
    return join;
  });
}

std::vector<std::byte> encode(const Joined& joined) {
  Writer w;
  w.u64(joined.lineage).u64(joined.last_sequence).u64(joined.clock).flag(joined.shares_memory);
  return w.take();
}

Joined decode_joined(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    Joined joined;
    joined.lineage = reader.u64();
    joined.last_sequence = reader.u64();
    joined.clock = reader.u64();
    joined.shares_memory = flag(reader);
    return joined;
  });
}

std::vector<std::byte> encode(const Query& query) {
  Writer w;
  w.u32(query.worker).u32(query.piece).u64(query.clock).u32(query.priority);
  return w.u16(static_cast<uint16_t>(query.part)).u32(query.num_rows).flag(query.by_rows).take();
}

Query decode_query(Type type, std::span<const std::byte> meta) {
  return whole(meta, [type](PayloadReader& reader) {
    Query query;
    query.type = type;
    query.worker = reader.u32();
    query.piece = reader.u32();
    query.clock = reader.u64();
    query.priority = reader.u32();
    query.part = enumerator(reader, Part::kSecond);
    query.num_rows = reader.u32();
    query.by_rows = flag(reader);
    return query;
  });
}

std::vector<std::byte> encode(const Answer& answer) {
  Writer w;
  w.flag(answer.dropped).u64(answer.service_ns).u32(answer.slot).u32(answer.slot_bytes);
  return w.take();
}

Answer decode_answer(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) {
    Answer answer;
    answer.dropped = flag(reader);
    answer.service_ns = reader.u64();
    answer.slot = reader.u32();
    answer.slot_bytes = reader.u32();
    return answer;
  });
}

std::vector<std::byte> encode_text(std::string_view text) { return Writer().text(text.substr(0, 8192)).take(); }

std::string decode_text(std::span<const std::byte> meta) {
  return whole(meta, [](PayloadReader& reader) { return reader.text(); });
}

}  // namespace trireme::server
