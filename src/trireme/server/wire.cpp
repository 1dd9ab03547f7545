#include "trireme/server/wire.h"

#include "trireme/base/crc32c.h"
#include "trireme/server/wire_fields.h"

namespace trireme::server {

using namespace fields;

template <typename Io>
void each_field(Io& io, Of<Io, JoinRequest>& join) {
  each_field(io, join.event, Type::kJoin);
  each_field(io, join.settings, join.num_servers, join.keys);
  io(join.ticket.pid, join.ticket.fd, join.ticket.secret, join.ticket.num_slots, join.ticket.slot_bytes);
}

template <typename Io>
void each_field(Io& io, Of<Io, Joined>& joined) {
  io(joined.lineage, joined.last_sequence, joined.clock, joined.shares_memory);
}

template <typename Io>
void each_field(Io& io, Of<Io, Query>& query, Type type) {
  if constexpr (std::is_same_v<Io, Reader>) query.type = type;
  io(query.worker, query.piece, query.clock, query.priority);
  io.one_of(query.part, Part::kSecond);
  io(query.num_rows, query.by_rows);
}

template <typename Io>
void each_field(Io& io, Of<Io, Answer>& answer) {
  io(answer.dropped, answer.service_ns, answer.slot, answer.slot_bytes);
}

std::array<std::byte, kHeaderBytes> encode(const WireHeader& header, std::span<const std::byte> meta) {
  Writer w;
  w(kMagic, kVersion, static_cast<uint16_t>(header.type), static_cast<uint32_t>(meta.size()), header.data_bytes,
    header.request);
  w(crc32c(meta, crc32c(w.bytes())), header.data_check);
  std::array<std::byte, kHeaderBytes> out;
  std::copy_n(w.bytes().begin(), kHeaderBytes, out.begin());
  return out;
}

WireHeader decode_wire_header(std::span<const std::byte> bytes) {
  Reader reader(bytes.first(kHeaderBytes));
  uint32_t magic = 0;
  uint16_t version = 0, type = 0;
  WireHeader header;
  reader(magic, version, type, header.meta_bytes, header.data_bytes, header.request, header.check, header.data_check);
  reader.demand(magic == kMagic && version == kVersion, "no frame of a parameter server");
  reader.demand(type != 0 && type <= static_cast<uint16_t>(Type::kEventAck), "a frame of no known type");
  reader.demand(header.meta_bytes <= kMaxMetaBytes && header.data_bytes <= kMaxDataBytes, "a frame too large");
  header.type = static_cast<Type>(type);
  return header;
}

void verify(std::span<const std::byte> header_bytes, const WireHeader& header, std::span<const std::byte> meta) {
  if (crc32c(meta, crc32c(header_bytes.first(24))) != header.check) {
    throw ProtocolError("a frame was damaged on its way");
  }
}

std::vector<std::byte> encode(const Event& event) { return written(event, event.type); }
Event decode_event(Type type, std::span<const std::byte> meta) { return read_whole<Event>(meta, type); }

std::vector<std::byte> encode(const JoinRequest& join) { return written(join); }
JoinRequest decode_join(std::span<const std::byte> meta) { return read_whole<JoinRequest>(meta); }

std::vector<std::byte> encode(const Joined& joined) { return written(joined); }
Joined decode_joined(std::span<const std::byte> meta) { return read_whole<Joined>(meta); }

std::vector<std::byte> encode(const Query& query) { return written(query, query.type); }
Query decode_query(Type type, std::span<const std::byte> meta) { return read_whole<Query>(meta, type); }

std::vector<std::byte> encode(const Answer& answer) { return written(answer); }
Answer decode_answer(std::span<const std::byte> meta) { return read_whole<Answer>(meta); }

std::vector<std::byte> encode_text(std::string_view text) { return Writer()(std::string(text.substr(0, 8192))).take(); }

std::string decode_text(std::span<const std::byte> meta) {
  Reader reader(meta);
  std::string text;
  reader(text).expect_end();
  return text;
}

}  // namespace trireme::server
