// Fields of the frames of parameter servers, for wire.cpp and wire_state.cpp: each_field(io, value) lists those of a
// value once. It writes them where `io` is a Writer, and reads and checks them where it is a Reader.
#pragma once

#include <bit>
#include <type_traits>

#include "trireme/server/wire.h"

namespace trireme::server::fields {

using control::PayloadReader;
using control::ProtocolError;

class Writer {
 public:
  template <typename... Values>
  Writer& operator()(const Values&... values) {
    (put(values), ...);
    return *this;
  }
  void count(int value) { put(value); }
  template <typename E>
  void one_of(E value, E) {
    put(static_cast<uint16_t>(value));
  }
  template <typename T, typename Each>
  void list(const std::vector<T>& items, size_t, const Each& each) {
    put(static_cast<uint32_t>(items.size()));
    for (const T& item : items) each(item);
  }
  void demand(bool, const char*) {}
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  template <typename T>
  void put(T value) {
    static_assert(std::is_integral_v<T>);
    for (size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(std::byte(static_cast<uint64_t>(value) >> (8 * i)));
  }
  void put(bool value) { put(static_cast<uint16_t>(value)); }
  void put(double value) { put(std::bit_cast<uint64_t>(value)); }
  void put(const std::string& text) {
    put(static_cast<uint32_t>(text.size()));
    for (const char letter : text) bytes_.push_back(static_cast<std::byte>(letter));
  }

  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : reader_(bytes) {}
  template <typename... Values>
  Reader& operator()(Values&... values) {
    (get(values), ...);
    return *this;
  }
  /// A number that is not negative; whether it makes sense is for check() to say.
  void count(int& value) {
    get(value);
    demand(value >= 0 && value <= 1 << 30, "a number is out of range");
  }
  template <typename E>
  void one_of(E& value, E last) {
    const uint16_t number = reader_.u16();
    demand(number <= static_cast<uint16_t>(last), "an enumerator that does not exist");
    value = static_cast<E>(number);
  }
  /// Each item takes at least `least` bytes of what is left: nothing is reserved for lies.
  template <typename T, typename Each>
  void list(std::vector<T>& items, size_t least, const Each& each) {
    const uint32_t count = reader_.u32();
    demand(count <= reader_.left() / least, "a list is longer than its frame");
    items.resize(count);
    for (T& item : items) each(item);
  }
  void demand(bool holds, const char* problem) const {
    if (!holds) throw ProtocolError(problem);
  }
  void expect_end() const { reader_.expect_end(); }

 private:
  void get(uint16_t& value) { value = reader_.u16(); }
  void get(uint32_t& value) { value = reader_.u32(); }
  void get(uint64_t& value) { value = reader_.u64(); }
  void get(int& value) { value = static_cast<int>(reader_.u32()); }
  void get(int64_t& value) { value = static_cast<int64_t>(reader_.u64()); }
  void get(double& value) { value = std::bit_cast<double>(reader_.u64()); }
  void get(std::string& text) { text = reader_.text(); }
  void get(bool& value) {
    const uint16_t number = reader_.u16();
    demand(number <= 1, "neither yes nor no");
    value = number == 1;
  }

  PayloadReader reader_;
};

/// What is only read is written from a constant.
template <typename Io, typename T>
using Of = std::conditional_t<std::is_same_v<Io, Reader>, T, const T>;

template <typename Io>
void each_field(Io& io, Of<Io, LeafRange>& leaves) {
  io(leaves.first, leaves.last);
  io.demand(leaves.first >= 0 && leaves.first <= leaves.last && leaves.last <= 1 << 30, "no range of leaves");
}

/// Which type it has stands in the header of its frame, or follows from what it is a part of.
template <typename Io>
void each_field(Io& io, Of<Io, Event>& event, Type type) {
  if constexpr (std::is_same_v<Io, Reader>) event.type = type;
  io(event.worker, event.sequence, event.piece, event.clock, event.lr, event.factor);
  io.one_of(event.part, Part::kSecond);
  io(event.applies, event.packed, event.num_rows, event.slot, event.slot_bytes);
  io.list(event.partials, 12, [&](auto& partial) {
    each_field(io, partial.leaves);
    io(partial.num_bytes);
  });
  if (type == Type::kInit) io(event.num_updates);
  if (type != Type::kJoin) return;
  io(event.incarnation);
  each_field(io, event.leaves);
  io(event.uses_all);
  io.list(event.uses, 4, [&](auto& key) { io(key); });
  io(event.pid, event.host);
}

/// The settings of a job, of its servers and of its keys.
template <typename Io>
void each_field(Io& io, Of<Io, Settings>& s, Of<Io, int>& num_servers, Of<Io, std::vector<Key>>& keys) {
  io.one_of(s.mode, Mode::kBounded);
  io.count(s.num_workers);
  io.count(s.num_leaves);
  io(s.staleness_bound, s.replicate, s.commits);
  io.one_of(s.rule.kind, OptimizerKind::kAdamW);
  io(s.rule.momentum, s.rule.nesterov, s.rule.beta1, s.rule.beta2, s.rule.eps, s.rule.weight_decay);
  io(s.piece_elements, s.codec);
  io.count(num_servers);
  io.list(keys, 22, [&](auto& key) {
    io(key.name, key.count, key.row_width, key.decays);
    io.demand(key.count <= uint64_t{1} << 40, "a key is larger than any memory");
  });
}

template <typename T, typename... More>
std::vector<std::byte> written(const T& value, const More&... more) {
  Writer w;
  each_field(w, value, more...);
  return w.take();
}

/// Reads a whole meta: nothing may be left.
template <typename T, typename... More>
T read_whole(std::span<const std::byte> meta, const More&... more) {
  Reader reader(meta);
  T value;
  each_field(reader, value, more...);
  reader.expect_end();
  return value;
}

}  // namespace trireme::server::fields
