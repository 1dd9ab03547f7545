// The frames: what is written is read back, and no bytes make a reader crash or take memory.
#include "trireme/comm/control/control_protocol.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace trireme::control {
namespace {

std::span<const std::byte> payload_of(const std::vector<std::byte>& frame) {
  return std::span(frame).subspan(kHeaderBytes);
}

Member make_member(int rank) {
  Member m;
  m.rank = rank;
  m.host_name = "host-" + std::to_string(rank);
  m.host_id = "id";
  m.pid = 1000 + rank;
  m.address = "10.0.0.1";
  m.port = uint16_t(40000 + rank);
  m.blob = std::string(size_t(rank), '\0');
  return m;
}

TEST(ControlProtocol, TheHeaderIsAsDocumented) {
  const std::vector<std::byte> frame = FrameWriter(FrameType::kAsk).u64(0x0102030405060708).finish();
  const unsigned char expected[] = {'T', 'R', 'R', 'M', 1, 0, 11, 0, 8, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1};
  ASSERT_EQ(frame.size(), sizeof expected);
  for (size_t i = 0; i < frame.size(); ++i) EXPECT_EQ(std::to_integer<int>(frame[i]), expected[i]) << i;
}

TEST(ControlProtocol, HelloComesBack) {
  Hello hello;
  hello.purpose = Purpose::kData;
  hello.rank = 3;
  hello.size = 5;
  hello.target = 4;
  hello.channel = 1ull << 63;
  hello.job = sha256("job");
  hello.nonce = sha256("nonce");
  hello.mac = sha256("mac");
  const std::vector<std::byte> frame = encode(hello);
  EXPECT_LT(frame.size(), kMaxHandshakeBytes);
  const Hello back = decode_hello(payload_of(frame));
  EXPECT_EQ(encode(back), frame);
  EXPECT_EQ(back.channel, hello.channel);
}

TEST(ControlProtocol, TheProofCoversEverything) {
  const Digest nonce = sha256("server");
  const Digest proof = mac_of({}, nonce, "token", "client");
  const std::function<void(Hello&)> changes[] = {[](Hello& h) { h.purpose = Purpose::kData; },
                                                 [](Hello& h) { h.protocol ^= 1; },
                                                 [](Hello& h) { h.library ^= 1; },
                                                 [](Hello& h) { h.job[31] ^= std::byte{1}; },
                                                 [](Hello& h) { h.rank ^= 1; },
                                                 [](Hello& h) { h.size ^= 1; },
                                                 [](Hello& h) { h.target ^= 1; },
                                                 [](Hello& h) { h.channel ^= 1; },
                                                 [](Hello& h) { h.nonce[0] ^= std::byte{1}; }};
  for (const auto& change : changes) {
    Hello hello;
    change(hello);
    EXPECT_NE(mac_of(hello, nonce, "token", "client"), proof);
  }
  EXPECT_NE(mac_of({}, sha256("other"), "token", "client"), proof);
  EXPECT_NE(mac_of({}, nonce, "other", "client"), proof);
  EXPECT_NE(mac_of({}, nonce, "token", "server"), proof);
}

TEST(ControlProtocol, ALargeTableComesBackInPieces) {
  std::vector<Member> members;
  for (int r = 0; r < 1500; ++r) members.push_back(make_member(r));
  const Bytes frames = encode_table(members);
  std::span<const std::byte> rest = *frames;
  TableReader reader;
  bool complete = false;
  int num_pieces = 0;
  while (!rest.empty()) {
    EXPECT_FALSE(complete);
    const FrameHeader header = decode_header(rest);
    ASSERT_LE(header.payload_bytes, kMaxPayloadBytes);
    complete = reader.add(rest.subspan(kHeaderBytes, header.payload_bytes));
    rest = rest.subspan(kHeaderBytes + header.payload_bytes);
    ++num_pieces;
  }
  EXPECT_TRUE(complete);
  EXPECT_GT(num_pieces, 1);
  const std::vector<Member> back = reader.members();
  ASSERT_EQ(back.size(), members.size());
  EXPECT_EQ(*encode_table(back), *frames);
}

TEST(ControlProtocol, APieceOutOfPlaceIsRejected) {
  const std::vector<std::byte> piece = FrameWriter(FrameType::kTable).u64(100).u64(1).finish();
  EXPECT_THROW(TableReader().add(payload_of(piece)), ProtocolError);
  const std::vector<std::byte> huge = FrameWriter(FrameType::kTable).u64(UINT64_MAX).u64(0).finish();
  EXPECT_THROW(TableReader().add(payload_of(huge)), ProtocolError);
}

TEST(ControlProtocol, RandomBytesNeverCrashAReader) {
  const std::function<void(std::span<const std::byte>)> readers[] = {[](auto p) { decode_hello(p); },
                                                                     [](auto p) { decode_refusal(p); },
                                                                     [](auto p) { decode_register(p); },
                                                                     [](auto p) { decode_waiting(p); },
                                                                     [](auto p) { decode_beat(p); },
                                                                     [](auto p) { decode_failure(p); },
                                                                     [](auto p) {
                                                                       std::vector<RankStatus> ranks;
                                                                       decode_answer(p, ranks);
                                                                     },
                                                                     [](auto p) {
                                                                       TableReader reader;
                                                                       if (reader.add(p)) reader.members();
                                                                     }};
  const std::vector<std::byte> good = encode_register(make_member(20));
  std::minstd_rand random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> bytes(random() % 300);
    for (std::byte& b : bytes) b = std::byte(random() % 4 == 0 ? random() : 0);
    if (i % 2 == 0) {
      bytes.assign(good.begin() + kHeaderBytes, good.end());
      bytes[random() % bytes.size()] ^= std::byte(1u << (random() % 8));
      bytes.resize(random() % (bytes.size() + 1));
    }
    for (const auto& reader : readers) {
      try {
        reader(bytes);
      } catch (const ProtocolError&) {
      }
    }
  }
}

}  // namespace
}  // namespace trireme::control
