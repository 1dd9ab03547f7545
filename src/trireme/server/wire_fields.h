// Fields of the frames of parameter servers, written and read: for wire.cpp and wire_state.cpp.
#pragma once

#include <bit>

#include "trireme/server/wire.h"

namespace trireme::server::fields {

using control::PayloadReader;
using control::ProtocolError;

class Writer {
 public:
  Writer& u16(uint16_t value) { return integer(value); }
  Writer& u32(uint32_t value) { return integer(value); }
  Writer& u64(uint64_t value) { return integer(value); }
  Writer& f64(double value) { return integer(std::bit_cast<uint64_t>(value)); }
  Writer& flag(bool value) { return integer(static_cast<uint16_t>(value)); }
  Writer& text(std::string_view text) {
    u32(static_cast<uint32_t>(text.size()));
    for (const char letter : text) bytes_.push_back(static_cast<std::byte>(letter));
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <typename T>
  Writer& integer(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(std::byte(value >> (8 * i)));
    return *this;
  }
  std::vector<std::byte> bytes_;
};

inline double f64(PayloadReader& reader) { return std::bit_cast<double>(reader.u64()); }

inline bool flag(PayloadReader& reader) {
  const uint16_t value = reader.u16();
  if (value > 1) throw ProtocolError("neither yes nor no");
  return value == 1;
}

template <typename E>
E enumerator(PayloadReader& reader, E last) {
  const uint16_t value = reader.u16();
  if (value > static_cast<uint16_t>(last)) throw ProtocolError("an enumerator that does not exist");
  return static_cast<E>(value);
}

/// A count of things of which each takes at least `least` bytes of what is left: nothing is reserved for lies.
inline size_t count_of(PayloadReader& reader, size_t least) {
  const uint32_t count = reader.u32();
  if (count > reader.left() / least) throw ProtocolError("a list is longer than its frame");
  return count;
}

inline void write(Writer& w, LeafRange leaves) {
  w.u32(static_cast<uint32_t>(leaves.first)).u32(static_cast<uint32_t>(leaves.last));
}

inline LeafRange leaf_range(PayloadReader& reader) {
  const uint32_t first = reader.u32(), last = reader.u32();
  if (first > last || last > (1u << 30)) throw ProtocolError("no range of leaves");
  return {static_cast<int>(first), static_cast<int>(last)};
}

inline void write(Writer& w, const std::vector<uint32_t>& list) {
  w.u32(static_cast<uint32_t>(list.size()));
  for (const uint32_t value : list) w.u32(value);
}

inline std::vector<uint32_t> list_of_u32(PayloadReader& reader) {
  std::vector<uint32_t> list(count_of(reader, 4));
  for (uint32_t& value : list) value = reader.u32();
  return list;
}

inline void write(Writer& w, const Event& event) {
  w.u32(event.worker).u64(event.sequence).u32(event.piece).u64(event.clock).f64(event.lr).f64(event.factor);
  w.u16(static_cast<uint16_t>(event.part)).flag(event.applies).flag(event.packed).u32(event.num_rows);
  w.u32(event.slot).u32(event.slot_bytes).u32(static_cast<uint32_t>(event.partials.size()));
  for (const PartialSum& partial : event.partials) {
    write(w, partial.leaves);
    w.u32(partial.num_bytes);
  }
  if (event.type == Type::kInit) w.u64(event.num_updates);
  if (event.type != Type::kJoin) return;
  w.u64(event.incarnation);
  write(w, event.leaves);
  write(w.flag(event.uses_all), event.uses);
  w.u32(event.pid).text(event.host);
}

inline Event event_of(Type type, PayloadReader& reader) {
  Event event;
  event.type = type;
  event.worker = reader.u32();
  event.sequence = reader.u64();
  event.piece = reader.u32();
  event.clock = reader.u64();
  event.lr = f64(reader);
  event.factor = f64(reader);
  event.part = enumerator(reader, Part::kSecond);
  event.applies = flag(reader);
  event.packed = flag(reader);
  event.num_rows = reader.u32();
  event.slot = reader.u32();
  event.slot_bytes = reader.u32();
  event.partials.resize(count_of(reader, 12));
  for (PartialSum& partial : event.partials) {
    partial.leaves = leaf_range(reader);
    partial.num_bytes = reader.u32();
  }
  if (type == Type::kInit) event.num_updates = reader.u64();
  if (type != Type::kJoin) return event;
  event.incarnation = reader.u64();
  event.leaves = leaf_range(reader);
  event.uses_all = flag(reader);
  event.uses = list_of_u32(reader);
  event.pid = reader.u32();
  event.host = reader.text();
  return event;
}

inline void write(Writer& w, const Settings& s, int num_servers, const std::vector<Key>& keys) {
  w.u16(static_cast<uint16_t>(s.mode)).u32(static_cast<uint32_t>(s.num_workers));
  w.u32(static_cast<uint32_t>(s.num_leaves)).u64(static_cast<uint64_t>(s.staleness_bound));
  w.flag(s.replicate).flag(s.commits);
  w.u16(static_cast<uint16_t>(s.rule.kind)).f64(s.rule.momentum).flag(s.rule.nesterov);
  w.f64(s.rule.beta1).f64(s.rule.beta2).f64(s.rule.eps).f64(s.rule.weight_decay);
  w.u64(s.piece_elements).u32(s.codec).u32(static_cast<uint32_t>(num_servers));
  w.u32(static_cast<uint32_t>(keys.size()));
  for (const Key& key : keys) {
    w.text(key.name).u64(key.count).u64(key.row_width).flag(key.decays);
  }
}

inline void read(PayloadReader& reader, Settings& s, int& num_servers, std::vector<Key>& keys) {
  const auto small = [&] {  // whether it makes sense is for check() to say
    const uint32_t value = reader.u32();
    if (value > (1u << 30)) throw ProtocolError("a number is out of range");
    return static_cast<int>(value);
  };
  s.mode = enumerator(reader, Mode::kBounded);
  s.num_workers = small();
  s.num_leaves = small();
  s.staleness_bound = static_cast<int64_t>(reader.u64());
  s.replicate = flag(reader);
  s.commits = flag(reader);
  s.rule.kind = enumerator(reader, OptimizerKind::kAdamW);
  s.rule.momentum = f64(reader);
  s.rule.nesterov = flag(reader);
  s.rule.beta1 = f64(reader);
  s.rule.beta2 = f64(reader);
  s.rule.eps = f64(reader);
  s.rule.weight_decay = f64(reader);
  s.piece_elements = reader.u64();
  s.codec = reader.u32();
  num_servers = small();
  keys.resize(count_of(reader, 22));
  for (Key& key : keys) {
    key.name = reader.text();
    key.count = reader.u64();
    key.row_width = reader.u64();
    key.decays = flag(reader);
    if (key.count > (uint64_t{1} << 40)) throw ProtocolError("a key is larger than any memory");
  }
}

/// Reads a whole meta: nothing may be left.
template <typename Body>
auto whole(std::span<const std::byte> meta, const Body& body) {
  PayloadReader reader(meta);
  auto value = body(reader);
  reader.expect_end();
  return value;
}

}  // namespace trireme::server::fields
